"""What must not be forgotten? Commands, what they changed, and what was answered: one SQLite file.

    commands       number, kind, payload, at          what was asked, in order; payload is empty for publish:
    messages       seq, command, id, body             ... its messages are here, where they can also be looked up
    updates        command, place, subscriber, ...    what it changed; "command.place" is the cursor
    subscriptions  subscriber, id, body               who asks for what now
    replies        subscriber, key, request, answer   what was answered under an Idempotency-Key
    held           subscriber, subscription, message  what results hold; only where a job elsewhere keeps them
    heard          file                               what of that job's output was taken in
    meta           name, value

Everything about a command is in one transaction, which is on disk (WAL, synchronous=FULL) before anyone hears of it:
a command without its updates, or an update with two cursors, cannot be. One thread writes; readers have a connection
of their own, and see what was committed.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from nearcast.errors import FormatError, InvalidInput
from nearcast.model import LEAVE, Update
from nearcast.service.commands import COMMANDS, Body, Command, Publish, Subscribe, Unsubscribe

REPLIES_KEPT_S = 24 * 3600.0

_STEPS = (
    """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE commands (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, payload TEXT, at REAL NOT NULL);
CREATE TABLE messages (seq INTEGER PRIMARY KEY, command INTEGER NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL);
CREATE INDEX messages_by_id ON messages (id);
CREATE INDEX messages_by_command ON messages (command);
CREATE TABLE updates (
    command INTEGER, place INTEGER, subscriber TEXT NOT NULL, subscription TEXT NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (command, place)
) WITHOUT ROWID;
CREATE INDEX updates_of ON updates (subscriber, command, place);
CREATE TABLE subscriptions (
    subscriber TEXT, id TEXT, body TEXT NOT NULL, PRIMARY KEY (subscriber, id)
) WITHOUT ROWID;
CREATE TABLE replies (
    subscriber TEXT, key TEXT, request TEXT NOT NULL, answer TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (subscriber, key)
) WITHOUT ROWID;
""",
    """
CREATE TABLE held (
    subscriber TEXT, subscription TEXT, message TEXT, score REAL NOT NULL, grows INTEGER NOT NULL,
    PRIMARY KEY (subscriber, subscription, message)
) WITHOUT ROWID;
CREATE TABLE heard (file TEXT PRIMARY KEY) WITHOUT ROWID;
""",
)
"""What makes each version of the one before; a file of an older version is brought up to date when it is opened."""
VERSION = len(_STEPS)
_COMMAND_OF = {command.kind: command for command in COMMANDS}


class Cursor(NamedTuple):
    """A place in the order of all updates: the last one that somebody has seen.

    >>> Cursor.read("12.3"), str(Cursor(12, 3))
    (Cursor(command=12, place=3), '12.3')
    """

    command: int
    place: int

    def __str__(self) -> str:
        return f"{self.command}.{self.place}"

    @classmethod
    def read(cls, text: str) -> Cursor:
        """Read a cursor as it was handed out."""
        command, dot, place = text.partition(".")
        if not (dot and all(part.isascii() and part.isdigit() and len(part) <= 18 for part in (command, place))):
            raise InvalidInput("after", "must be a cursor that came with an update", text)
        return cls(int(command), int(place))


class StoredResult(NamedTuple):
    """A message that a result holds."""

    message: str
    score: float
    seq: int
    """0 if the message is not kept any more."""
    at: float | None


class JournaledUpdate(NamedTuple):
    """An update with its cursor, and who is to hear of it."""

    cursor: Cursor
    subscriber: str
    subscription: str
    body: str
    """JSON, without the cursor."""

    @property
    def json(self) -> str:
        """The update as clients get it."""
        return f'{{"cursor": "{self.cursor}", {self.body[1:]}'


def told(number: int, updates: Iterable[Update]) -> list[JournaledUpdate]:
    """Give updates of a command their places."""
    listed = []
    for place, update in enumerate(updates, 1):
        subscriber, _, subscription = str(update.subscription).partition("/")
        body = json.dumps(
            {"seq": update.seq, "at": update.at, "subscription": subscription, "message": update.message,
             "change": update.change, "score": update.score}
        )  # fmt: skip
        listed.append(JournaledUpdate(Cursor(number, place), subscriber, subscription, body))
    return listed


def connect(file: Path) -> sqlite3.Connection:
    """Open a journal's file."""
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA busy_timeout = 5000")
    return connection


class Reading(ABC):
    """What a journal can be asked."""

    @abstractmethod
    def _all(self, query: str, values: Sequence[Any]) -> list[Any]:
        """Return all rows that a query finds."""

    def subscription(self, subscriber: str, id_: str) -> Body | None:
        """Return a subscription as it was sent."""
        rows = self._all("SELECT body FROM subscriptions WHERE subscriber = ? AND id = ?", (subscriber, id_))
        return json.loads(rows[0][0]) if rows else None

    def subscriptions(self, subscriber: str, *, after: str, limit: int) -> list[Body]:
        """Return subscriptions in the order of their ids, from behind one on."""
        query = "SELECT body FROM subscriptions WHERE subscriber = ? AND id > ? ORDER BY id LIMIT ?"
        return [json.loads(body) for (body,) in self._all(query, (subscriber, after, limit))]

    def message(self, id_: str) -> Body | None:
        """Return the newest message of an id, if it is still there."""
        rows = self._all("SELECT body FROM messages WHERE id = ? ORDER BY seq DESC LIMIT 1", (id_,))
        return json.loads(rows[0][0]) if rows else None

    def messages(self, ids: Sequence[str]) -> dict[str, Body]:
        """Return the newest message of each id, of those that are still there."""
        return {id_: body for id_ in ids if (body := self.message(id_)) is not None}

    def updates(self, subscriber: str, *, after: Cursor, upto: Cursor, limit: int) -> list[JournaledUpdate]:
        """Return what a subscriber was told between two cursors, in order, the first so many."""
        rows = self._all(
            "SELECT command, place, subscription, body FROM updates WHERE subscriber = ?"
            " AND (command, place) > (?, ?) AND (command, place) <= (?, ?) ORDER BY command, place LIMIT ?",
            (subscriber, *after, *upto, limit),
        )
        return [
            JournaledUpdate(Cursor(command, place), subscriber, subscription, body)
            for command, place, subscription, body in rows
        ]

    def last_seq(self) -> int:
        """Return the number of the last message, also of one that is not kept any more."""
        ((seq,),) = self._all("SELECT coalesce(max(seq), 0) FROM messages", ())
        return max(int(seq), self.meta("seq") or 0)

    def meta(self, name: str) -> Any:
        """Return something that was noted, or None."""
        rows = self._all("SELECT value FROM meta WHERE name = ?", (name,))
        return json.loads(rows[0][0]) if rows else None

    def pruned(self) -> int:
        """Return the last command whose updates are gone."""
        return self.meta("pruned") or 0

    def held(self, subscriber: str, id_: str) -> list[StoredResult]:
        """Return what the result of a subscription holds, in no order; see `hold`."""
        query = (
            "SELECT h.message, h.score, coalesce(m.seq, 0), json_extract(m.body, '$.at') FROM held h"
            " LEFT JOIN messages m ON m.seq = (SELECT max(seq) FROM messages WHERE id = h.message)"
            " WHERE h.subscriber = ? AND h.subscription = ?"
        )
        return [StoredResult(*row) for row in self._all(query, (subscriber, id_))]

    def newest(self, n: int) -> list[Body]:
        """Return the newest messages, the oldest of them first."""
        rows = self._all("SELECT body FROM messages ORDER BY seq DESC LIMIT ?", (n,))
        return [json.loads(body) for (body,) in reversed(rows)]


class Journal(Reading):
    """Writes; for one thread."""

    def __init__(self, file: Path) -> None:
        self._db = connect(file)
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise FormatError(f"{file} must be a journal of version {VERSION} at most; got version {version}")
        with self.transaction():
            for statement in ";".join(_STEPS[version:]).split(";"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {VERSION}")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _all(self, query: str, values: Sequence[Any]) -> list[Any]:
        return self._db.execute(query, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Let everything in the block be on disk when it ends, or nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.commit()
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def commit(self) -> None:
        """Put a transaction on disk, unless that was done."""
        if self._db.in_transaction:
            self._db.execute("COMMIT")

    def position(self) -> Cursor:
        """Return the cursor behind everything that is there."""
        (number,) = self._db.execute("SELECT coalesce(max(number), 0) FROM commands").fetchone()
        (place,) = self._db.execute(
            "SELECT coalesce(max(place), 0) FROM updates WHERE command = ?", (number,)
        ).fetchone()
        return Cursor(number, place)

    def append(
        self, number: int, command: Command, updates: Sequence[JournaledUpdate], *, first_seq: int, at: float
    ) -> None:
        """Write down a command that was applied, and what it changed."""
        payload = None if isinstance(command, Publish) else json.dumps(asdict(command))  # type: ignore[call-overload]
        self._db.execute("INSERT INTO commands VALUES (?, ?, ?, ?)", (number, command.kind, payload, at))
        if isinstance(command, Publish):
            rows = ((first_seq + i, number, m["id"], json.dumps(m)) for i, m in enumerate(command.messages))
            self._db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?)", rows)
        elif isinstance(command, Subscribe):
            bodies = ((command.subscriber, body["id"], json.dumps(body)) for body in command.subscriptions)
            self._db.executemany("INSERT OR REPLACE INTO subscriptions VALUES (?, ?, ?)", bodies)
        elif isinstance(command, Unsubscribe):
            ids = ((command.subscriber, id_) for id_ in command.ids)
            self._db.executemany("DELETE FROM subscriptions WHERE subscriber = ? AND id = ?", ids)
        self._db.executemany(
            "INSERT INTO updates VALUES (?, ?, ?, ?, ?)",
            ((*one.cursor, one.subscriber, one.subscription, one.body) for one in updates),
        )

    def commands(self, *, after: int) -> Iterator[tuple[int, Command]]:
        """Yield commands in order, to be applied again."""
        rows = self._db.execute(
            "SELECT number, kind, payload FROM commands WHERE number > ? ORDER BY number", (after,)
        )
        for number, kind, payload in rows:
            if kind == Publish.kind:
                found = self._db.execute("SELECT body FROM messages WHERE command = ? ORDER BY seq", (number,))
                yield number, Publish([json.loads(body) for (body,) in found])
            else:
                yield number, _COMMAND_OF[kind](**json.loads(payload))

    def subscribed(self, subscriber: str, ids: Iterable[str]) -> dict[str, str]:
        """Return those of some ids that are subscribed, with their kinds."""
        query = "SELECT json_extract(body, '$.kind') FROM subscriptions WHERE subscriber = ? AND id = ?"
        found = ((id_, self._db.execute(query, (subscriber, id_)).fetchone()) for id_ in set(ids))
        return {id_: row[0] for id_, row in found if row is not None}

    # -- what a job elsewhere tells -----------------------------------------------------------------------------

    def heard(self) -> set[str]:
        """Return the files of a job's output that were taken in."""
        return {file for (file,) in self._db.execute("SELECT file FROM heard")}

    def hear(self, files: Iterable[str]) -> None:
        """Note files of a job's output."""
        self._db.executemany("INSERT OR IGNORE INTO heard VALUES (?)", ((file,) for file in files))

    def hold(self, subscriber: str, id_: str, update: Update, *, grows: bool) -> None:
        """Let a result follow an update; one that `grows` loses messages as they are forgotten."""
        row = (subscriber, id_, str(update.message))
        if update.change == LEAVE:
            self._db.execute("DELETE FROM held WHERE subscriber = ? AND subscription = ? AND message = ?", row)
        else:
            self._db.execute("INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?, ?)", (*row, update.score, grows))

    def let_go(self, subscriber: str, ids: Iterable[str], *, only_growing: bool) -> None:
        """Forget what results hold; of subscriptions that are replaced, only what nobody will say leaves."""
        query = "DELETE FROM held WHERE subscriber = ? AND subscription = ?" + " AND grows" * only_growing
        self._db.executemany(query, ((subscriber, id_) for id_ in ids))

    # -- what was answered --------------------------------------------------------------------------------------

    def reply(self, subscriber: str, key: str, *, now: float) -> tuple[str, Any] | None:
        """Return the request that was sent under a key, and its answer; None if there is none, or it is too old."""
        row = self._db.execute(
            "SELECT request, answer FROM replies WHERE subscriber = ? AND key = ? AND at > ?",
            (subscriber, key, now - REPLIES_KEPT_S),
        ).fetchone()
        return None if row is None else (row[0], json.loads(row[1]))

    def keep_reply(self, subscriber: str, key: str, request: str, answer: Any, *, at: float) -> None:
        """Write down an answer."""
        self._db.execute(
            "INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?, ?)",
            (subscriber, key, request, json.dumps(answer), at),
        )

    # -- what is known of itself --------------------------------------------------------------------------------

    def note(self, name: str, value: Any) -> None:
        """Note something."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, json.dumps(value)))

    # -- forgetting ---------------------------------------------------------------------------------------------

    def prune(self, *, upto: int, before: float, most_updates: int, now: float) -> None:
        """Forget commands with their messages and updates: up to a number, if they are old or there are too many.

        The last command stays, as it says where numbers go on.
        """
        last = self.position().command
        (old,) = self._db.execute("SELECT coalesce(max(number), 0) FROM commands WHERE at < ?", (before,)).fetchone()
        crowd = self._db.execute(
            "SELECT command FROM updates ORDER BY command DESC, place DESC LIMIT 1 OFFSET ?", (most_updates,)
        ).fetchone()
        cut = min(upto, last - 1, max(old, crowd[0] if crowd else 0))
        with self.transaction():
            self._db.execute("DELETE FROM replies WHERE at <= ?", (now - REPLIES_KEPT_S,))
            if cut > (self.meta("pruned") or 0):
                self.note("seq", self.last_seq())
                self._db.execute("DELETE FROM updates WHERE command <= ?", (cut,))
                self._db.execute("DELETE FROM messages WHERE command <= ?", (cut,))
                self._db.execute("DELETE FROM commands WHERE number <= ?", (cut,))
                self._db.execute("DELETE FROM held WHERE grows AND message NOT IN (SELECT id FROM messages)")
                self.note("pruned", cut)


class Reader(Reading):
    """Reads what was committed; for any thread, one at a time."""

    def __init__(self, file: Path) -> None:
        self._db = connect(file)
        self._db.execute("PRAGMA query_only = ON")
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _all(self, query: str, values: Sequence[Any]) -> list[Any]:
        with self._lock:
            return self._db.execute(query, values).fetchall()
