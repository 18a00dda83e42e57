"""The journal: commands, their updates and their answers, in one SQLite file.

    commands        number, name, payload, at          commands in order; the payload of publish is empty:
    messages        seq, command, id, body             ... its messages are here, where they can be looked up
    updates         command, ordinal, subscriber, ...  the updates of a command; "command.ordinal" is the cursor
    subscriptions   subscriber, id, body               current subscriptions
    replies         subscriber, key, request, answer   answers given under an Idempotency-Key
    results         subscriber, subscription, message  current results; only if a job elsewhere computes them
    ingested_files  file                               output files of that job that were ingested
    meta            name, value

Everything about a command is in one transaction, which is on disk (WAL, synchronous=FULL) before anything is answered
or pushed. So a command without its updates, or an update with two cursors, cannot occur. One thread writes; readers
have a connection of their own and see committed data.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from nearcast.errors import FormatError
from nearcast.model import LEAVE, Update
from nearcast.service.commands import COMMANDS, Command
from nearcast.service.json_bodies import Body
from nearcast.service.store.cursor import Cursor
from nearcast.service.subscription_key import SubscriptionKey

REPLY_TTL_S = 24 * 3600.0

_OLDEST_VERSION = 3
_MIGRATIONS = (
    """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE commands (number INTEGER PRIMARY KEY, name TEXT NOT NULL, payload TEXT, at REAL NOT NULL);
CREATE TABLE messages (seq INTEGER PRIMARY KEY, command INTEGER NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL);
CREATE INDEX messages_by_id ON messages (id);
CREATE INDEX messages_by_command ON messages (command);
CREATE TABLE updates (
    command INTEGER, ordinal INTEGER, subscriber TEXT NOT NULL, subscription TEXT NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (command, ordinal)
) WITHOUT ROWID;
CREATE INDEX updates_by_subscriber ON updates (subscriber, command, ordinal);
CREATE TABLE subscriptions (
    subscriber TEXT, id TEXT, body TEXT NOT NULL, PRIMARY KEY (subscriber, id)
) WITHOUT ROWID;
CREATE TABLE replies (
    subscriber TEXT, key TEXT, request TEXT NOT NULL, answer TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (subscriber, key)
) WITHOUT ROWID;
CREATE TABLE results (
    subscriber TEXT, subscription TEXT, message TEXT, score REAL NOT NULL, unbounded INTEGER NOT NULL,
    PRIMARY KEY (subscriber, subscription, message)
) WITHOUT ROWID;
CREATE TABLE ingested_files (file TEXT PRIMARY KEY) WITHOUT ROWID;
""",
)
"""The tables of the oldest version, then what changes each version into the next; opening a file migrates it."""
VERSION = _OLDEST_VERSION + len(_MIGRATIONS) - 1
_BY_KEY = "subscriber = ? AND id = ?"
_OF_SUBSCRIPTION = "subscriber = ? AND subscription = ?"


class StoredResult(NamedTuple):
    """A message in a result."""

    message: str
    score: float
    seq: int
    """0 if the journal does not hold the message any more."""
    at: float | None


class JournaledUpdate(NamedTuple):
    """An update with its cursor."""

    cursor: Cursor
    key: SubscriptionKey
    body: str
    """JSON, without the cursor."""

    @property
    def json(self) -> str:
        """The update as clients receive it."""
        return f'{{"cursor": "{self.cursor}", {self.body[1:]}'


def assign_cursors(number: int, updates: Iterable[Update]) -> list[JournaledUpdate]:
    """Return the updates of a command with their cursors, in the given order."""
    journaled = []
    for ordinal, update in enumerate(updates, 1):
        key = SubscriptionKey.parse(update.subscription)
        body = json.dumps(
            {"seq": update.seq, "at": update.at, "subscription": key.id, "message": update.message,
             "change": update.change, "score": update.score}
        )  # fmt: skip
        journaled.append(JournaledUpdate(Cursor(number, ordinal), key, body))
    return journaled


def connect(file: Path) -> sqlite3.Connection:
    """Open a SQLite file with write-ahead log and full synchronisation."""
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA busy_timeout = 5000")
    return connection


class JournalQueries(ABC):
    """Queries on a journal that do not change it."""

    @abstractmethod
    def _rows(self, query: str, values: Sequence[Any]) -> list[Any]:
        """Return all rows of a query."""

    def subscription(self, key: SubscriptionKey) -> Body | None:
        """Return a subscription as it was sent."""
        rows = self._rows(f"SELECT body FROM subscriptions WHERE {_BY_KEY}", key)
        return json.loads(rows[0][0]) if rows else None

    def subscriptions(self, subscriber: str, *, after: str, limit: int) -> list[Body]:
        """Return subscriptions ordered by id, starting after an id."""
        query = "SELECT body FROM subscriptions WHERE subscriber = ? AND id > ? ORDER BY id LIMIT ?"
        return [json.loads(body) for (body,) in self._rows(query, (subscriber, after, limit))]

    def message(self, id_: str) -> Body | None:
        """Return the newest message with an id, if it is retained."""
        rows = self._rows("SELECT body FROM messages WHERE id = ? ORDER BY seq DESC LIMIT 1", (id_,))
        return json.loads(rows[0][0]) if rows else None

    def messages(self, ids: Sequence[str]) -> dict[str, Body]:
        """Return the newest message with each id, where it is retained."""
        return {id_: body for id_ in ids if (body := self.message(id_)) is not None}

    def newest_messages(self, n: int) -> list[Body]:
        """Return the newest messages, oldest first."""
        rows = self._rows("SELECT body FROM messages ORDER BY seq DESC LIMIT ?", (n,))
        return [json.loads(body) for (body,) in reversed(rows)]

    def updates(self, subscriber: str, *, after: Cursor, up_to: Cursor, limit: int) -> list[JournaledUpdate]:
        """Return the first `limit` updates of a subscriber between two cursors, in order."""
        rows = self._rows(
            "SELECT command, ordinal, subscription, body FROM updates WHERE subscriber = ?"
            " AND (command, ordinal) > (?, ?) AND (command, ordinal) <= (?, ?) ORDER BY command, ordinal LIMIT ?",
            (subscriber, *after, *up_to, limit),
        )
        return [
            JournaledUpdate(Cursor(command, ordinal), SubscriptionKey(subscriber, subscription), body)
            for command, ordinal, subscription, body in rows
        ]

    def results(self, key: SubscriptionKey) -> list[StoredResult]:
        """Return the result of a subscription, unordered; see `Journal.apply_update`."""
        query = (
            "SELECT r.message, r.score, coalesce(m.seq, 0), json_extract(m.body, '$.at') FROM results r"
            " LEFT JOIN messages m ON m.seq = (SELECT max(seq) FROM messages WHERE id = r.message)"
            " WHERE r.subscriber = ? AND r.subscription = ?"
        )
        return [StoredResult(*row) for row in self._rows(query, key)]

    def last_seq(self) -> int:
        """Return the seq of the last message, including messages that are not retained."""
        ((seq,),) = self._rows("SELECT coalesce(max(seq), 0) FROM messages", ())
        return max(int(seq), self.meta("seq") or 0)

    def pruned(self) -> int:
        """Return the last command whose updates are deleted."""
        return self.meta("pruned") or 0

    def meta(self, name: str) -> Any:
        """Return the value of a name, or None."""
        rows = self._rows("SELECT value FROM meta WHERE name = ?", (name,))
        return json.loads(rows[0][0]) if rows else None


class Journal(JournalQueries):
    """Reads and writes a journal, from one thread."""

    def __init__(self, file: Path) -> None:
        self._db = connect(file)
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version and not _OLDEST_VERSION <= version <= VERSION:
            self._db.close()
            known = " or ".join(map(str, range(_OLDEST_VERSION, VERSION + 1)))
            raise FormatError(f"{file} must be a journal of version {known}; got version {version}")
        missing = _MIGRATIONS[version - _OLDEST_VERSION + 1 if version else 0 :]
        with self.transaction():
            for statement in ";".join(missing).split(";"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {VERSION}")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _rows(self, query: str, values: Sequence[Any]) -> list[Any]:
        return self._db.execute(query, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes of the block, or none."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.commit()
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def commit(self) -> None:
        """Write the open transaction to disk, if there is one."""
        if self._db.in_transaction:
            self._db.execute("COMMIT")

    # -- commands -----------------------------------------------------------------------------------------------

    def position(self) -> Cursor:
        """Return the cursor after the last command."""
        (number,) = self._db.execute("SELECT coalesce(max(number), 0) FROM commands").fetchone()
        (ordinal,) = self._db.execute(
            "SELECT coalesce(max(ordinal), 0) FROM updates WHERE command = ?", (number,)
        ).fetchone()
        return Cursor(number, ordinal)

    def append(
        self, number: int, command: Command, updates: Sequence[JournaledUpdate], *, first_seq: int, at: float
    ) -> None:
        """Write a command that was applied, and its updates."""
        payload = command.payload()
        text = None if payload is None else json.dumps(payload)
        self._db.execute("INSERT INTO commands VALUES (?, ?, ?, ?)", (number, command.name, text, at))
        command.record(self, number=number, first_seq=first_seq)
        self._db.executemany(
            "INSERT INTO updates VALUES (?, ?, ?, ?, ?)",
            ((*update.cursor, *update.key, update.body) for update in updates),
        )

    def commands(self, *, after: int) -> Iterator[tuple[int, Command]]:
        """Yield commands in order with their numbers, to be applied again."""
        rows = self._db.execute(
            "SELECT number, name, payload FROM commands WHERE number > ? ORDER BY number", (after,)
        )
        for number, name, payload in rows:

            def read_messages(number: int = number) -> list[Body]:
                found = self._db.execute("SELECT body FROM messages WHERE command = ? ORDER BY seq", (number,))
                return [json.loads(body) for (body,) in found]

            yield number, COMMANDS[name].restore(json.loads(payload or "{}"), read_messages)

    def insert_messages(self, bodies: Sequence[Body], *, command: int, first_seq: int) -> None:
        """Insert the messages of a command."""
        rows = ((first_seq + i, command, body["id"], json.dumps(body)) for i, body in enumerate(bodies))
        self._db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?)", rows)

    def put_subscriptions(self, subscriber: str, bodies: Sequence[Body]) -> None:
        """Insert or replace subscriptions."""
        rows = ((subscriber, body["id"], json.dumps(body)) for body in bodies)
        self._db.executemany("INSERT OR REPLACE INTO subscriptions VALUES (?, ?, ?)", rows)

    def delete_subscriptions(self, subscriber: str, ids: Sequence[str]) -> None:
        """Delete subscriptions."""
        self._db.executemany(f"DELETE FROM subscriptions WHERE {_BY_KEY}", ((subscriber, id_) for id_ in ids))

    def subscribed(self, subscriber: str, ids: Iterable[str]) -> dict[str, str]:
        """Return the kind of each id that is subscribed."""
        query = f"SELECT json_extract(body, '$.kind') FROM subscriptions WHERE {_BY_KEY}"
        found = ((id_, self._db.execute(query, (subscriber, id_)).fetchone()) for id_ in set(ids))
        return {id_: row[0] for id_, row in found if row is not None}

    # -- the output of a job ------------------------------------------------------------------------------------

    def ingested_files(self) -> set[str]:
        """Return the output files of the job that were ingested."""
        return {file for (file,) in self._db.execute("SELECT file FROM ingested_files")}

    def add_ingested_files(self, files: Iterable[str]) -> None:
        """Mark output files of the job as ingested."""
        self._db.executemany("INSERT OR IGNORE INTO ingested_files VALUES (?)", ((file,) for file in files))

    def apply_update(self, key: SubscriptionKey, update: Update, *, unbounded: bool) -> None:
        """Apply an update to a result. An `unbounded` result loses messages only when they are pruned."""
        row = (*key, str(update.message))
        if update.change == LEAVE:
            self._db.execute(f"DELETE FROM results WHERE {_OF_SUBSCRIPTION} AND message = ?", row)
        else:
            self._db.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?)", (*row, update.score, unbounded))

    def delete_results(self, subscriber: str, ids: Iterable[str], *, only_unbounded: bool) -> None:
        """Delete the results of subscriptions.

        When a subscription is replaced, only unbounded results are deleted: the job reports the leaves of all others.
        """
        query = f"DELETE FROM results WHERE {_OF_SUBSCRIPTION}" + " AND unbounded" * only_unbounded
        self._db.executemany(query, ((subscriber, id_) for id_ in ids))

    # -- answers under an Idempotency-Key -----------------------------------------------------------------------

    def reply(self, subscriber: str, key: str, *, now: float) -> tuple[str, Any] | None:
        """Return the fingerprint of the request sent under a key, and its answer; None if unknown or too old."""
        row = self._db.execute(
            "SELECT request, answer FROM replies WHERE subscriber = ? AND key = ? AND at > ?",
            (subscriber, key, now - REPLY_TTL_S),
        ).fetchone()
        return None if row is None else (row[0], json.loads(row[1]))

    def store_reply(self, subscriber: str, key: str, request: str, answer: Any, *, at: float) -> None:
        """Store the answer to a request under a key."""
        self._db.execute(
            "INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?, ?)",
            (subscriber, key, request, json.dumps(answer), at),
        )

    # -- upkeep -------------------------------------------------------------------------------------------------

    def set_meta(self, name: str, value: Any) -> None:
        """Set the value of a name."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, json.dumps(value)))

    def prune(self, *, up_to: int, before: float, max_updates: int, now: float) -> None:
        """Delete commands up to a number, with their messages and updates, if they are old or there are too many.

        The last command stays, since it defines where the numbers continue.
        """
        last = self.position().command
        (old,) = self._db.execute("SELECT coalesce(max(number), 0) FROM commands WHERE at < ?", (before,)).fetchone()
        excess = self._db.execute(
            "SELECT command FROM updates ORDER BY command DESC, ordinal DESC LIMIT 1 OFFSET ?", (max_updates,)
        ).fetchone()
        cut = min(up_to, last - 1, max(old, excess[0] if excess else 0))
        with self.transaction():
            self._db.execute("DELETE FROM replies WHERE at <= ?", (now - REPLY_TTL_S,))
            if cut > self.pruned():
                self.set_meta("seq", self.last_seq())
                self._db.execute("DELETE FROM updates WHERE command <= ?", (cut,))
                self._db.execute("DELETE FROM messages WHERE command <= ?", (cut,))
                self._db.execute("DELETE FROM commands WHERE number <= ?", (cut,))
                self._db.execute("DELETE FROM results WHERE unbounded AND message NOT IN (SELECT id FROM messages)")
                self.set_meta("pruned", cut)


class JournalReader(JournalQueries):
    """Reads committed data; any thread may call it, and calls take turns."""

    def __init__(self, file: Path) -> None:
        self._db = connect(file)
        self._db.execute("PRAGMA query_only = ON")
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _rows(self, query: str, values: Sequence[Any]) -> list[Any]:
        with self._lock:
            return self._db.execute(query, values).fetchall()
