"""The oracle: results computed a second time, without any code of the package.

Everything is recomputed from the list of all messages ever published, straight from the definitions, with plain
dictionaries. It is far too slow for anything but small tests.

Two messages whose scores differ by less than TOLERANCE may be in either order, unless they are equivalent to the kind
and tie exactly: then the rule for ties decides.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import re
import sqlite3
import unicodedata
from collections import Counter

import shapely
from uniseg.wordbreak import words

TOLERANCE = 1e-9


class Oracle:
    def __init__(
        self, *, metric, max_distance, weights, edges, window, text_similarity="containment", analyzer="simple"
    ):
        self.metric, self.max_distance = metric, max_distance
        self.weights, self.edges = weights, set(edges)
        self.window = window  # ("count", n), ("time", seconds) or None
        self.text_similarity = text_similarity
        self.analyzer = analyzer
        self.log = []  # every message in time and not retracted: dicts with seq, id, location, text, place, at, body,
        # expires_at
        self.seq = 0
        self.now = -math.inf
        self.late = 0
        self.subscriptions = {}  # id -> dict with kind, since and fields

    # -- events

    def subscribe(self, id_, kind, fields):
        self.subscriptions[id_] = {"kind": kind, "since": self.seq, "held": [], **fields}

    def unsubscribe(self, id_):
        del self.subscriptions[id_]

    def publish(self, message):
        """Publish one message; return whether it was in time."""
        self.seq += 1
        if message.get("at") is not None:
            self.advance(message["at"])
        is_old = self.window and self.window[0] == "time" and message["at"] <= self.now - self.window[1]
        if is_old or self.has_expired(message):
            self.late += 1
            return False
        self.log.append({**message, "seq": self.seq})
        return True

    def retract(self, ids):
        """Withdraw messages; return those that were in the window."""
        withdrawn = [m for m in self.live() if m["id"] in ids]
        self.log = [m for m in self.log if m["id"] not in ids]
        for s in self.subscriptions.values():
            s["held"] = [m for m in s["held"] if m["id"] not in ids]
        return withdrawn

    def retractable(self):
        """Return the ids of the window, and of the messages that a result of kind `nearest` holds."""
        held = [m["id"] for s in self.subscriptions.values() for m in s["held"]]
        return sorted({*(m["id"] for m in self.live()), *held})

    def body(self, id_):
        """Return the body of the message under an id."""
        return {m["id"]: m.get("body") for m in self.log}[id_]

    def advance(self, now):
        self.now = max(self.now, now)
        self.subscriptions = {id_: s for id_, s in self.subscriptions.items() if not self.has_expired(s)}
        self.log = [m for m in self.log if not self.has_expired(m)]
        for s in self.subscriptions.values():
            s["held"] = [m for m in s["held"] if not self.has_expired(m)]

    def has_expired(self, thing):
        """Return whether a message or a subscription has expired by a time of its own."""
        return thing.get("expires_at") is not None and thing["expires_at"] <= self.now

    def live(self):
        if self.window is None:
            return []
        kind, size = self.window
        if kind == "count":
            return [m for m in self.log if m["seq"] > self.seq - size]
        return [m for m in self.log if m["at"] > self.now - size]

    # -- checks

    def matches(self, id_, message):
        """Return (must match, may match, score) for the stateless kinds."""
        s = self.subscriptions[id_]
        passes = self.passes(s, message)
        if s["kind"] == "boolean":
            ok = passes and satisfies(s["keywords"], self.terms(message["text"]), self.runs)
            return ok, ok, 1.0
        score = self.similarity(s, message)
        if not passes:
            return False, False, score
        exact = score == s["tau"]
        return exact or score >= s["tau"] + TOLERANCE, exact or score >= s["tau"] - TOLERANCE, score

    def check_result(self, id_, result):
        """Raise AssertionError unless a list of (message id, score), best first, is a correct result."""
        s = self.subscriptions[id_]
        eligible = {}
        for m in self.pool(s):
            score = self.score(s, m) if self.passes(s, m) else None
            if score is not None:
                eligible[m["id"]] = (score, m)
        got = [message for message, _ in result]
        assert len(got) == len(set(got)), f"{id_}: a message occurs twice in {got}"
        assert len(got) == min(s["k"], len(eligible)), f"{id_}: {got} of {sorted(eligible)}"
        for message, score in result:
            assert message in eligible, f"{id_}: {message} does not belong in the result"
            assert math.isclose(score, eligible[message][0], rel_tol=1e-9, abs_tol=TOLERANCE), (id_, message, score)
        order = [eligible[message] for message in got]
        rest = [found for message, found in eligible.items() if message not in got]
        for better, worse in itertools.pairwise(order):
            assert self.may_precede(s, better, worse), f"{id_}: {better} before {worse}"
        for inside in order:
            for outside in rest:
                assert self.may_precede(s, inside, outside), f"{id_}: {inside} kept, {outside} left out"
        s["held"] = [m for _, m in order] if s["kind"] == "nearest" else []

    def pool(self, s):
        """Return the messages that may be in a result; `nearest` keeps what it has, and fills up from the window."""
        if s["kind"] != "nearest":
            return self.live()
        new = self.log[-1:] if self.log and self.log[-1]["seq"] == self.seq else []
        found = [*s["held"], *self.live(), *new]
        return list({m["seq"]: m for m in found if m["seq"] > s["since"]}.values())

    def may_precede(self, s, a, b):
        sign = 1 if s["kind"] == "nearest" else -1
        if self.are_equivalent(s["kind"], a[1], b[1]):
            older_first = s["kind"] == "nearest"
            return (a[1]["seq"] < b[1]["seq"]) == older_first
        scale = max(1.0, abs(a[0]), abs(b[0]))
        return sign * (a[0] - b[0]) <= TOLERANCE * scale

    def are_equivalent(self, kind, a, b):
        """Return whether two messages are the same to a kind, so that their scores tie bit by bit."""
        if a["location"] != b["location"]:
            return False
        if kind == "nearest":
            return True
        same_terms = Counter(self.terms(a["text"])) == Counter(self.terms(b["text"]))
        return same_terms and (kind == "topk" or a["place"] == b["place"])

    def terms(self, text):
        return [term for run in self.runs(text) for term in run]

    def runs(self, text):
        return runs_of(text, self.analyzer)

    # -- filters

    def passes(self, s, m):
        """Return whether a message passes the region, the condition and the required expression."""
        required = s.get("require")
        return (
            (s.get("region") is None or self.is_inside(s["region"], m["location"]))
            and (s.get("where") is None or is_true(s["where"], m.get("attributes") or {}))
            and (required is None or satisfies(required, self.terms(m["text"]), self.runs))
        )

    def is_inside(self, region, location):
        x, y = location
        if region[0] == "circle":
            return location == region[1] or self.distance(region[1], location) <= region[2]
        if region[0] == "polygon":
            return shapely.covers(shapely.Polygon(region[1], region[2]), shapely.Point(x, y))
        xmin, ymin, xmax, ymax = region
        return (xmin <= x <= xmax if xmin <= xmax else x >= xmin or x <= xmax) and ymin <= y <= ymax

    # -- scores, from the definitions

    def score(self, s, m):
        held, wanted = Counter(self.terms(m["text"])), Counter(self.terms(s["keywords"]))
        shared = set(held) & set(wanted)
        if s["kind"] == "social":
            dice = 2 * len(shared) / (len(wanted) + len(held))
            return self.near(s, m) + dice + self.social(s["user"], m["place"])
        if not shared:
            return None
        if s["kind"] == "nearest":
            return self.distance(s["location"], m["location"])
        a, b = self.vector(wanted), self.vector(held)
        cosine = math.fsum(a[t] * b[t] for t in shared)
        return s["alpha"] * self.near(s, m) + (1 - s["alpha"]) * cosine

    def similarity(self, s, m):
        held, wanted = set(self.terms(m["text"])), set(self.terms(s["keywords"]))
        shared = held & wanted
        weigh = lambda group: math.fsum(self.weight(t) for t in group)  # noqa: E731
        text = {
            "containment": lambda: weigh(shared) / weigh(wanted),
            "overlap": lambda: len(shared) / len(wanted),
            "jaccard": lambda: weigh(shared) / weigh(held | wanted),
            "dice": lambda: 2 * len(shared) / (len(held) + len(wanted)),
            "cosine": lambda: len(shared) / math.sqrt(len(held) * len(wanted)) if held else 0.0,
        }[self.text_similarity]()
        return s["delta"] * text + (1 - s["delta"]) * self.near(s, m)

    def vector(self, counts):
        raw = {t: n * self.weight(t) for t, n in counts.items()}
        length = math.sqrt(math.fsum(w * w for w in raw.values()))
        return {t: w / length for t, w in raw.items()}

    def weight(self, term):
        return self.weights.get(term, max(self.weights.values()))

    def near(self, s, m):
        return max(0.0, 1 - self.distance(s["location"], m["location"]) / self.max_distance)

    def distance(self, a, b):
        if self.metric == "euclidean":
            return math.dist(a, b)
        # Chord between unit vectors: another way than the haversine formula to the same great circle.
        va, vb = unit_vector(*a), unit_vector(*b)
        return 2 * 6_371_008.8 * math.asin(min(1.0, math.dist(va, vb) / 2))

    def social(self, user, place):
        if place is None:
            return 0.0
        if (user, place) in self.edges:
            return 1.0
        mine = {p for u, p in self.edges if u == user}
        best = 0.0
        for other in {u for u, p in self.edges if p == place}:
            theirs = {p for u, p in self.edges if u == other}
            best = max(best, 2 * len(mine & theirs) / (len(mine) + len(theirs)))
        return best


# Letters of scripts without spaces, by their names: not by the properties that the package uses.
SPACELESS = re.compile(
    r"(CJK UNIFIED IDEOGRAPH|HIRAGANA|KATAKANA|THAI|LAO|KHMER|MYANMAR)\b.*"
    r"|IDEOGRAPHIC (ITERATION MARK|NUMBER ZERO)|KATAKANA-HIRAGANA PROLONGED SOUND MARK"
)


def terms_of(text, analyzer):
    """Return the terms of a text."""
    return [term for run in runs_of(text, analyzer) for term in run]


def runs_of(text, analyzer):
    """Return the terms of a text, bigrams of one run together: the runs, then the words between them."""
    if not isinstance(text, str):
        return [[term] for term in text]
    text = unicodedata.normalize("NFKC", text).casefold()
    if analyzer == "simple":
        return [[word] for word in "".join(c if c.isalnum() else " " for c in text).split()]
    text = "".join(c for c in text if c in JOINERS + ZERO_WIDTH_SPACE or unicodedata.category(c) != "Cf")
    found = []
    for is_run, group in itertools.groupby(letters_with_marks(text), lambda letter: is_spaceless(letter[0])):
        letters = list(group)
        if not is_run:
            found += [[word] for word in words("".join(letters)) if any(c.isalnum() for c in word)]
        else:
            found.append(["".join(pair) for pair in itertools.pairwise(letters)] or letters)
    return found if analyzer == "unicode" else [[stem_of(word, analyzer) for word in run] for run in found]


@functools.cache
def stem_of(word, language):
    """Return the stem by the implementation in Python; `snowballstemmer.stemmer` would return the other one."""
    module = importlib.import_module(f"snowballstemmer.{language}_stemmer")
    return getattr(module, f"{language.capitalize()}Stemmer")().stemWord(word)


JOINERS, ZERO_WIDTH_SPACE = "\u200c\u200d", "\u200b"


def letters_with_marks(text):
    """Divide a text into characters, each with the marks that follow."""
    found = []
    for c in text:
        if found and (unicodedata.category(c) in ("Mn", "Mc", "Me") or c in JOINERS):
            found[-1] += c
        else:
            found.append(c)
    return found


def is_spaceless(c):
    return unicodedata.category(c) in ("Lo", "Lm", "Nl") and SPACELESS.match(unicodedata.name(c)) is not None


def satisfies(expression, held, runs=lambda text: [[word] for word in text.replace('"', " ").split()]):
    """Evaluate an expression in Python, with adjacent words joined by `and`; `held` has terms in their order."""
    held, out, previous = list(held), [], None
    for symbol in re.findall(r'"[^"]*"|[()]|[^\s()"]+', expression):
        if symbol in ("AND", "OR"):
            out.append(symbol.lower())
        else:
            if previous not in (None, "(", "AND", "OR", "NOT") and symbol != ")":
                out.append("and")
            if symbol == "NOT":
                out.append("not")
            elif symbol in "()":
                out.append(symbol)
            else:
                found = runs(symbol)
                phrases = [list(itertools.chain.from_iterable(found))] if symbol.startswith('"') else found
                out.append(str(all(are_side_by_side(phrase, held) for phrase in phrases)))
        previous = symbol
    return eval(" ".join(out))


def are_side_by_side(phrase, held):
    return any(held[i : i + len(phrase)] == phrase for i in range(len(held)))


@functools.cache
def database():
    return sqlite3.connect(":memory:", check_same_thread=False)


ATTRIBUTES = ("price", "stars", "category", "open now")


def is_true(condition, attributes):
    """Evaluate a condition by SQLite, whose logic has three values too."""
    columns = ", ".join(f'? AS "{name}"' for name in ATTRIBUTES)
    query = f"SELECT ({condition}) FROM (SELECT {columns})"
    (found,) = database().execute(query, [attributes.get(name) for name in ATTRIBUTES]).fetchone()
    return found == 1


def unit_vector(lon, lat):
    lon, lat = math.radians(lon), math.radians(lat)
    return (math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat))
