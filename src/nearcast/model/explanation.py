"""Explanations: each part of a score as data, and the threshold that the score has to reach."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nearcast.model.identity import Id
from nearcast.social import SocialLink
from nearcast.space import MultiPolygon, Point, Polygon, Region
from nearcast.text import Analyzer, Highlight, Text, highlights_of


@dataclass(frozen=True)
class ScorePart:
    """One part of a score: `value` counts `weight` times. A part without a weight is a condition.

    >>> ScorePart("text", 0.5, 0.5, shared_terms=("jazz",)).note
    'shares jazz'
    """

    name: str
    value: float
    weight: float | None = None
    passes: bool = True
    """False if this part alone rules the message out."""
    distance: float | None = None
    """Distance between message and subscription: metres on the earth, else units of the plane."""
    shared_terms: tuple[str, ...] | None = None
    """Terms that message and subscription share."""
    missing_terms: tuple[str, ...] | None = None
    """Terms that the message lacks to satisfy the expression."""
    location: Point | None = None
    """Location of the message, where a region is the condition."""
    region: Region | None = None
    """Region of the subscription, where it is the condition."""
    condition: Text | None = None
    """The filter of the subscription, where it is the condition."""
    excluded_terms: tuple[str, ...] | None = None
    """Terms and phrases that the message holds and must not, or lacks side by side."""
    user: Id | None = None
    place: Id | None = None
    """User of the subscription and place of the message, where the social graph counts."""
    link: SocialLink | None = None
    """The user of the social graph that connects the two; None if there is none."""

    @property
    def note(self) -> str:
        """One phrase for people, made from the fields above."""
        if self.excluded_terms:
            return f"fails on {', '.join(self.excluded_terms)}"
        if self.condition is not None:
            return self.condition if isinstance(self.condition, str) else " ".join(self.condition)
        if self.missing_terms is not None:
            return f"missing: {' '.join(self.missing_terms)}" if self.missing_terms else "satisfied"
        if self.shared_terms is not None:
            return f"shares {' '.join(self.shared_terms) or 'nothing'}"
        if self.region is not None:
            return f"{self.location} in {_short(self.region)}"
        if self.user is not None:
            return self._social_note
        return "" if self.distance is None or self.name == "distance" else f"distance {self.distance:.6g}"

    @property
    def _social_note(self) -> str:
        if self.place is None:
            return "the message has no place"
        if self.link is None:
            return f"no connection between {self.user} and {self.place}"
        if self.link.user == self.user:
            return f"{self.user} is connected to {self.place}"
        n = len(self.link.shared_places)
        return f"{self.link.user}, who shares {n} place{'s' * (n > 1)} with {self.user}, is connected to {self.place}"


def _short(region: Region) -> str:
    """Return a region in a few words: polygons may have thousands of points."""
    if not isinstance(region, (Polygon, MultiPolygon)):
        return repr(region)
    return f"a {type(region).__name__} of {sum(map(len, region.rings))} points"


@dataclass(frozen=True)
class Explanation:
    """How a message scores for a subscription, part by part."""

    kind: str
    subscription: Id
    message: Id
    parts: tuple[ScorePart, ...]
    score: float | None
    """None if a condition fails."""
    threshold: float | None = None
    """The score to reach: tau, or the worst of k results; None if every score passes."""
    passes: bool = False
    """True if the message is in the result, or would be if it were published now."""
    reason: str = ""
    hints: tuple[str, ...] = ()
    """Sentences on what the subscription says and probably does not mean."""
    highlights: tuple[Highlight, ...] | None = None
    """The words of the text that gave the shared terms, as written; None if the text of the message is not known."""

    def with_highlights(self, text: Text, analyzer: Analyzer) -> Explanation:
        """Return the explanation of a message with a text that gave the shared terms."""
        terms = {term for part in self.parts for term in part.shared_terms or ()}
        return replace(self, highlights=highlights_of(text, terms, analyzer=analyzer))

    def __str__(self) -> str:
        lines = [f"{self.kind} subscription {self.subscription!r}, message {self.message!r}: {self.reason}"]
        for part in self.parts:
            weight = "" if part.weight is None else f"x {part.weight:g}"
            mark = "" if part.passes else "  <- fails"
            lines.append(f"  {part.name:<10} {part.value:<10.6g} {weight:<10} {part.note}{mark}".rstrip())
        score = "none" if self.score is None else f"{self.score:.6g}"
        threshold = "none" if self.threshold is None else f"{self.threshold:.6g}"
        lines.append(f"  score {score}, threshold {threshold}")
        if self.highlights:
            lines.append(f"  words      {', '.join(dict.fromkeys(repr(found.word) for found in self.highlights))}")
        lines += [f"  hint: {hint}" for hint in self.hints]
        return "\n".join(lines)


@dataclass(frozen=True)
class Preview:
    """What a subscription would hold of the newest messages."""

    results: list[Explanation]
    """The best first; not more than requested."""
    total: int
    """The number of messages that the result would hold."""
    among: int
    """The number of messages that were considered."""
