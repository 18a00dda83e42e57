"""The journal: commands, their updates and their answers, in one SQLite file.

    commands        number, name, payload, at          commands in order; the payload of publish is empty:
    messages        seq, command, id, publisher, body  ... its messages are here, where they can be looked up
    updates         command, ordinal, subscriber, ...  the updates of a command; "command.ordinal" is the cursor, and
                                                       message_seq the message; 0 if only its id is known
    subscriptions   subscriber, id, kind, ..., body    current subscriptions, see `subscription_row`
    replies         subscriber, key, request, answer   answers given under an Idempotency-Key
    results         subscriber, subscription, message  current results; only if a job elsewhere computes them
    ingested_files  file                               output files of that job that were ingested last
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
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from nearcast.errors import FormatError
from nearcast.model import LEAVE, Update
from nearcast.service.commands import COMMANDS, Command, Growth, RecordedCommand, SubscriptionSize
from nearcast.service.json_bodies import Body
from nearcast.service.store.clusters import Cluster, cluster_query
from nearcast.service.store.cursor import Cursor
from nearcast.service.store.subscription_filter import SubscriptionFilter
from nearcast.service.store.subscription_row import SubscriptionRow
from nearcast.service.subscription_key import SubscriptionKey
from nearcast.space import Box, Space

REPLY_TTL_S = 24 * 3600.0
_NOW = "now"

_OLDEST_VERSION = 6
_MIGRATIONS = (
    """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE commands (number INTEGER PRIMARY KEY, name TEXT NOT NULL, payload TEXT, at REAL NOT NULL);
CREATE TABLE messages (
    seq INTEGER PRIMARY KEY, command INTEGER NOT NULL, id TEXT NOT NULL, publisher TEXT NOT NULL,
    retracted INTEGER NOT NULL, body TEXT NOT NULL
);
CREATE INDEX messages_by_id ON messages (id);
CREATE INDEX messages_by_command ON messages (command);
CREATE TABLE updates (
    command INTEGER, ordinal INTEGER, subscriber TEXT NOT NULL, subscription TEXT NOT NULL, body TEXT NOT NULL,
    message_seq INTEGER NOT NULL, PRIMARY KEY (command, ordinal)
) WITHOUT ROWID;
CREATE INDEX updates_by_subscriber ON updates (subscriber, command, ordinal);
CREATE TABLE subscriptions (
    subscriber TEXT, id TEXT, kind TEXT NOT NULL, words TEXT NOT NULL,
    xmin REAL, ymin REAL, xmax REAL, ymax REAL, expires_at REAL, body TEXT NOT NULL, PRIMARY KEY (subscriber, id)
) WITHOUT ROWID;
CREATE INDEX subscriptions_by_end ON subscriptions (expires_at) WHERE expires_at IS NOT NULL;
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
_CAPACITY = "coalesce(json_extract(body, '$.k'), 0)"
_ALL = SubscriptionFilter()


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
    message_seq: int = 0
    """The seq of the message that entered or left; 0 if only its id is known."""
    content: str | None = None
    """The message as JSON, or null, if the client has asked for it."""

    @property
    def json(self) -> str:
        """The update as clients receive it."""
        body = self.body if self.content is None else f'{self.body[:-1]}, "content": {self.content}}}'
        return f'{{"cursor": "{self.cursor}", {body[1:]}'


def assign_cursors(number: int, updates: Iterable[Update]) -> list[JournaledUpdate]:
    """Return the updates of a command with their cursors, in the given order."""
    journaled = []
    for ordinal, update in enumerate(updates, 1):
        key = SubscriptionKey.parse(update.subscription)
        body = json.dumps(
            {"seq": update.seq, "at": update.at, "subscription": key.id, "message": update.message,
             "change": update.change, "score": update.score}
        )  # fmt: skip
        journaled.append(JournaledUpdate(Cursor(number, ordinal), key, body, update.message_seq))
    return journaled


def connect(file: Path) -> sqlite3.Connection:
    """Open a SQLite file with write-ahead log and full synchronisation."""
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    try:
        with opening(file):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA busy_timeout = 5000")
    except BaseException:
        connection.close()
        raise
    return connection


_UNUSABLE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_ERROR)


@contextmanager
def opening(file: Path) -> Iterator[None]:
    """Raise `FormatError` if SQLite cannot use a file that is opened; a lock or a full disk is no such fault."""
    try:
        yield
    except UnicodeDecodeError as error:  # in the words of SQLite, which quote the file
        raise FormatError(f"{file} is damaged: {error}") from error
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _UNUSABLE:
            raise
        raise FormatError(f"{file} is damaged, read-only or no SQLite file: {error}") from error


class JournalQueries(ABC):
    """Queries on a journal that do not change it."""

    @abstractmethod
    def _rows(self, query: str, values: Sequence[Any]) -> list[Any]:
        """Return all rows of a query."""

    def subscription(self, key: SubscriptionKey) -> Body | None:
        """Return a subscription as it was sent."""
        rows = self._rows(f"SELECT body FROM subscriptions WHERE {_BY_KEY}", key)
        return json.loads(rows[0][0]) if rows else None

    def subscriptions(
        self, subscriber: str, filter_: SubscriptionFilter = _ALL, *, after: str = "", limit: int
    ) -> list[Body]:
        """Return subscriptions that pass a filter, ordered by id, starting after an id."""
        condition, values = filter_.condition(subscriber)
        if after:  # else SQLite would prefer this condition to one on ids
            condition, values = f"{condition} AND id > ?", [*values, after]
        query = f"SELECT body FROM subscriptions WHERE {condition} ORDER BY id LIMIT ?"
        return [json.loads(body) for (body,) in self._rows(query, (*values, limit))]

    def count_by_kind(self, subscriber: str, filter_: SubscriptionFilter) -> dict[str, int]:
        """Return how many subscriptions of each kind pass a filter."""
        condition, values = filter_.condition(subscriber)
        return dict(self._rows(f"SELECT kind, count(*) FROM subscriptions WHERE {condition} GROUP BY kind", values))

    def clusters(self, subscriber: str, view: Box, filter_: SubscriptionFilter) -> list[Cluster]:
        """Return the subscriptions in a view that pass a filter, as clusters."""
        condition, values = replace(filter_, within=view).condition(subscriber)
        return [Cluster(*row) for row in self._rows(*cluster_query(view, condition, values))]

    def subscribed(self, subscriber: str, ids: Iterable[str]) -> dict[str, str]:
        """Return the kind of each id that is subscribed."""
        query = f"SELECT kind FROM subscriptions WHERE {_BY_KEY}"
        found = ((id_, self._rows(query, (subscriber, id_))) for id_ in set(ids))
        return {id_: rows[0][0] for id_, rows in found if rows}

    def sizes(self, subscriber: str, ids: Iterable[str]) -> dict[str, SubscriptionSize]:
        """Return the size of each id that is subscribed."""
        query = f"SELECT {_CAPACITY}, length(body) FROM subscriptions WHERE {_BY_KEY}"
        found = ((id_, self._rows(query, (subscriber, id_))) for id_ in set(ids))
        return {id_: SubscriptionSize(*rows[0]) for id_, rows in found if rows}

    def next_end(self) -> float | None:
        """Return the next time at which a subscription expires."""
        ((end,),) = self._rows("SELECT min(expires_at) FROM subscriptions WHERE expires_at IS NOT NULL", ())
        return end  # type: ignore[no-any-return]

    def expired(self, now: float) -> list[SubscriptionKey]:
        """Return the subscriptions that have expired."""
        query = "SELECT subscriber, id FROM subscriptions WHERE expires_at IS NOT NULL AND expires_at <= ?"
        return [SubscriptionKey(*row) for row in self._rows(query, (now,))]

    def usage(self) -> list[Growth]:
        """Return what each subscriber has."""
        query = (
            f"SELECT subscriber, count(*), sum({_CAPACITY}), sum(length(body)) FROM subscriptions GROUP BY subscriber"
        )
        return [Growth(*row) for row in self._rows(query, ())]

    def message(self, id_: str) -> Body | None:
        """Return the newest message with an id, if it is retained."""
        query = "SELECT body FROM messages WHERE id = ? AND NOT retracted ORDER BY seq DESC LIMIT 1"
        rows = self._rows(query, (id_,))
        return json.loads(rows[0][0]) if rows else None

    def messages(self, ids: Sequence[str]) -> dict[str, Body]:
        """Return the newest message with each id, where it is retained."""
        return {id_: body for id_ in ids if (body := self.message(id_)) is not None}

    def messages_at(self, seqs: Sequence[int]) -> dict[int, Body]:
        """Return the messages with some seqs, where they are retained."""
        query = "SELECT body FROM messages WHERE seq = ?"
        found = ((seq, self._rows(query, (seq,))) for seq in seqs)
        return {seq: json.loads(rows[0][0]) for seq, rows in found if rows}

    def with_contents(self, updates: Sequence[JournaledUpdate]) -> list[JournaledUpdate]:
        """Return updates with the messages that entered or left, null where they are not retained or withdrawn."""
        found: dict[int | str, str] = {}

        def content_of(update: JournaledUpdate) -> str:
            key = update.message_seq or json.loads(update.body)["message"]
            if key not in found:
                column = "seq" if update.message_seq else "id"
                query = f"SELECT body FROM messages WHERE {column} = ? AND NOT retracted ORDER BY seq DESC LIMIT 1"
                rows = self._rows(query, (key,))
                found[key] = rows[0][0] if rows else "null"
            return found[key]

        return [update._replace(content=content_of(update)) for update in updates]

    def newest_messages(self, n: int) -> list[Body]:
        """Return the newest messages, oldest first."""
        rows = self._rows("SELECT body FROM messages ORDER BY seq DESC LIMIT ?", (n,))
        return [json.loads(body) for (body,) in reversed(rows)]

    def updates(self, subscriber: str, *, after: Cursor, up_to: Cursor, limit: int) -> list[JournaledUpdate]:
        """Return the first `limit` updates of a subscriber between two cursors, in order."""
        rows = self._rows(
            "SELECT command, ordinal, subscription, body, message_seq FROM updates WHERE subscriber = ?"
            " AND (command, ordinal) > (?, ?) AND (command, ordinal) <= (?, ?) ORDER BY command, ordinal LIMIT ?",
            (subscriber, *after, *up_to, limit),
        )
        return [
            JournaledUpdate(Cursor(command, ordinal), SubscriptionKey(subscriber, subscription), body, message_seq)
            for command, ordinal, subscription, body, message_seq in rows
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

    def reusable_bytes(self) -> int:
        """Return the space within the file that deleted rows have left."""
        return self._pragma("freelist_count") * self._pragma("page_size")

    def used_bytes(self) -> int:
        """Return the space within the file that rows take."""
        return self._pragma("page_count") * self._pragma("page_size") - self.reusable_bytes()

    def _pragma(self, name: str) -> int:
        ((value,),) = self._rows(f"PRAGMA {name}", ())
        return int(value)

    def pruned(self) -> int:
        """Return the last command whose updates are deleted."""
        return self.meta("pruned") or 0

    def meta(self, name: str) -> Any:
        """Return the value of a name, or None."""
        rows = self._rows("SELECT value FROM meta WHERE name = ?", (name,))
        return json.loads(rows[0][0]) if rows else None


class Journal(JournalQueries):
    """Reads and writes a journal, from one thread."""

    space: Space | None = None
    """The space of the subscriptions, in which regions have an extent."""

    def __init__(self, file: Path) -> None:
        self._db = connect(file)
        try:
            with opening(file):
                self._migrate(file)
        except BaseException:
            self._db.close()
            raise

    def _migrate(self, file: Path) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version and not _OLDEST_VERSION <= version <= VERSION:
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
        self.begin()
        try:
            yield
            self.commit()
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def begin(self) -> None:
        """Begin a transaction."""
        self._db.execute("BEGIN IMMEDIATE")

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

    def last_time(self) -> float:
        """Return the last time that is recorded, 0 in a new journal."""
        row = self._db.execute("SELECT at FROM commands ORDER BY number DESC LIMIT 1").fetchone()
        return max(0.0 if row is None else row[0], self.meta(_NOW) or 0.0)

    def set_now(self, now: float) -> None:
        """Record a time to which an engine was advanced that is saved, if no command has recorded it."""
        self.set_meta(_NOW, now)

    def append(
        self, number: int, command: Command, updates: Sequence[JournaledUpdate], *, first_seq: int, at: float
    ) -> None:
        """Write a command that was applied, and its updates."""
        payload = command.payload()
        text = None if payload is None else json.dumps(payload)
        self._db.execute("INSERT INTO commands VALUES (?, ?, ?, ?)", (number, command.name, text, at))
        command.record(self, number=number, first_seq=first_seq)
        self._db.executemany(
            "INSERT INTO updates VALUES (?, ?, ?, ?, ?, ?)",
            ((*update.cursor, *update.key, update.body, update.message_seq) for update in updates),
        )

    def commands(self, *, after: int) -> Iterator[RecordedCommand]:
        """Yield commands in order, to be applied again."""
        rows = self._db.execute(
            "SELECT number, at, name, payload FROM commands WHERE number > ? ORDER BY number", (after,)
        )
        for number, at, name, payload in rows:

            def read_messages(number: int = number) -> list[Body]:
                found = self._db.execute("SELECT body FROM messages WHERE command = ? ORDER BY seq", (number,))
                return [json.loads(body) for (body,) in found]

            command = COMMANDS[name].restore(json.loads(payload or "{}"), read_messages)
            yield RecordedCommand(number, at, command)

    def insert_messages(self, bodies: Sequence[Body], *, publisher: str, command: int, first_seq: int) -> None:
        """Insert the messages of a command."""
        rows = (
            (first_seq + i, command, body["id"], publisher, False, json.dumps(body)) for i, body in enumerate(bodies)
        )
        self._db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)", rows)

    def retract_messages(self, seqs: Sequence[int]) -> None:
        """Mark messages as withdrawn; a replay still needs them."""
        self._db.executemany("UPDATE messages SET retracted = TRUE WHERE seq = ?", ((seq,) for seq in seqs))

    def published(self, publisher: str | None, ids: Sequence[str]) -> list[int]:
        """Return the seqs of the messages of a publisher that have some ids, are retained and not withdrawn.

        None stands for all publishers.
        """
        query = "SELECT seq FROM messages WHERE id = ?1 AND (?2 IS NULL OR publisher = ?2) AND NOT retracted"
        return sorted({seq for id_ in ids for (seq,) in self._rows(query, (id_, publisher))})

    def put_subscriptions(self, subscriber: str, bodies: Sequence[Body]) -> None:
        """Insert or replace subscriptions."""
        assert self.space is not None, "set by the data folder"
        rows = [SubscriptionRow.of(subscriber, body, self.space) for body in bodies]
        self._db.executemany("INSERT OR REPLACE INTO subscriptions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def delete_subscriptions(self, subscriber: str, ids: Sequence[str]) -> None:
        """Delete subscriptions."""
        self._db.executemany(f"DELETE FROM subscriptions WHERE {_BY_KEY}", ((subscriber, id_) for id_ in ids))

    # -- the output of a job ------------------------------------------------------------------------------------

    def ingested_files(self) -> set[str]:
        """Return the output files of the job that were ingested last, or more of them."""
        return {file for (file,) in self._db.execute("SELECT file FROM ingested_files")}

    def set_ingested_files(self, files: Iterable[str]) -> None:
        """Mark output files of the job as those ingested last; all before them in its log are ingested too."""
        self._db.execute("DELETE FROM ingested_files")
        self._db.executemany("INSERT INTO ingested_files VALUES (?)", ((file,) for file in files))

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

    def delete_meta(self, *names: str) -> None:
        """Delete the values of names."""
        self._db.executemany("DELETE FROM meta WHERE name = ?", ((name,) for name in names))

    def prune(self, *, up_to: int, before: float, max_updates: int, max_bytes: int, now: float) -> None:
        """Delete commands up to a number, with their messages and updates, if they are old or there are too many.

        More are deleted, oldest first, while the journal takes more than `max_bytes`. The last command stays, since
        it defines where the numbers continue.
        """
        newest = min(up_to, self.position().command - 1)  # that may be deleted
        (old,) = self._db.execute("SELECT coalesce(max(number), 0) FROM commands WHERE at < ?", (before,)).fetchone()
        excess = self._db.execute(
            "SELECT command FROM updates ORDER BY command DESC, ordinal DESC LIMIT 1 OFFSET ?", (max_updates,)
        ).fetchone()
        before_it = self.pruned()
        cut = max(before_it, min(newest, max(old, excess[0] if excess else 0)))
        with self.transaction():
            self._db.execute("DELETE FROM replies WHERE at <= ?", (now - REPLY_TTL_S,))
            self.set_meta("seq", self.last_seq())
            self._delete_commands(cut)
            while (used := self.used_bytes()) > max_bytes and cut < newest:
                # Commands differ in size: half of what would be right for equal ones, then look again.
                cut += max(1, (newest - cut) * (used - max_bytes) // (2 * used))
                self._delete_commands(cut)
            if cut > before_it:
                self._db.execute("DELETE FROM results WHERE unbounded AND message NOT IN (SELECT id FROM messages)")
                self.set_meta("pruned", cut)

    def _delete_commands(self, up_to: int) -> None:
        for table, column in (("updates", "command"), ("messages", "command"), ("commands", "number")):
            self._db.execute(f"DELETE FROM {table} WHERE {column} <= ?", (up_to,))


class JournalReader(JournalQueries):
    """Reads committed data; any thread may call it, and calls take turns."""

    def __init__(self, file: Path) -> None:
        self._db = connect(file)
        self._db.execute("PRAGMA query_only = ON")
        self._lock = threading.RLock()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all queries of the block see the same state; other threads wait meanwhile."""
        with self._lock:
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._db.execute("ROLLBACK")  # nothing was written

    def _rows(self, query: str, values: Sequence[Any]) -> list[Any]:
        with self._lock:
            return self._db.execute(query, values).fetchall()
