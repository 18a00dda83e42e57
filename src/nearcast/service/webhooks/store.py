"""Who is told where, and how far? Hooks, and of each the delivery that is under way: one SQLite file.

    hooks       subscriber, id, url, ...         cursor: everything up to there was acknowledged, or was not for it
    deliveries  subscriber, id, name, body, upto  what is to be sent next, fixed before it is tried

A delivery is on disk before its first attempt and goes in the same transaction that moves the cursor. Everything is
done in a thread of its own, in the order of the calls; what a call returns for is on disk (WAL, synchronous=FULL).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from nearcast.errors import FormatError, StateError
from nearcast.service.journal import Cursor, connect
from nearcast.service.problem import Problem, fault
from nearcast.service.webhooks.sign import new_secret

VERSION = 1
OLD_SECRET_S = 24 * 3600.0

_TABLES = """
CREATE TABLE hooks (
    subscriber TEXT, id TEXT, url TEXT NOT NULL, subscriptions TEXT, cursor TEXT NOT NULL,
    secret TEXT NOT NULL, old_secret TEXT, old_until REAL NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0, next_attempt REAL, last_error TEXT, disabled TEXT,
    PRIMARY KEY (subscriber, id)
) WITHOUT ROWID;
CREATE TABLE deliveries (
    subscriber TEXT, id TEXT, name TEXT NOT NULL, body BLOB NOT NULL, upto TEXT NOT NULL, PRIMARY KEY (subscriber, id)
) WITHOUT ROWID;
"""
_P = ParamSpec("_P")
_T = TypeVar("_T")


class Name(NamedTuple):
    """Whose hook, and which."""

    subscriber: str
    id: str


@dataclass(frozen=True)
class Hook:
    """A hook as it stands."""

    name: Name
    url: str
    subscriptions: tuple[str, ...] | None
    """Only of these; else of all of the subscriber's."""
    cursor: Cursor
    secret: str
    old_secret: str | None
    old_until: float
    failures: int
    """In a row."""
    next_attempt: float | None
    last_error: str | None
    disabled: str | None
    """Why nothing is sent any more, if so."""

    def keys(self, *, now: float) -> list[str]:
        """Return the secrets to sign with, the newest first."""
        is_good = self.old_secret is not None and now < self.old_until
        return [self.secret, *([self.old_secret] if self.old_secret is not None and is_good else [])]


class Delivery(NamedTuple):
    """Updates on their way."""

    name: str
    body: bytes
    upto: Cursor


class WebhookCounts(NamedTuple):
    """How many hooks there are, and how many of them are disabled."""

    hooks: int
    disabled: int


class WebhookStore:
    """Reads and writes; its methods are called through `do`, in one thread."""

    def __init__(self, file: Path, *, most: int = 100) -> None:
        """Open a book, or make it; a subscriber can have so many hooks."""
        file.touch(mode=0o600)  # there are secrets in it
        self._most = most
        self._db = connect(file)
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                for statement in _TABLES.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {VERSION}")
        elif version != VERSION:
            self._db.close()
            raise FormatError(f"{file} must be a book of webhooks of version {VERSION}; got version {version}")
        self._thread = ThreadPoolExecutor(1, "webhook-book")

    def close(self) -> None:
        """Finish what was asked, and close the file."""
        self._thread.shutdown()
        self._db.close()

    async def do(self, act: Callable[Concatenate[WebhookStore, _P], _T], *args: _P.args, **more: _P.kwargs) -> _T:
        """Do something in the book's thread, as one transaction."""

        def done() -> _T:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                return act(self, *args, **more)

        return await asyncio.get_running_loop().run_in_executor(self._thread, done)

    # -- what is registered -------------------------------------------------------------------------------------

    def put(
        self, name: Name, url: str, subscriptions: list[str] | None, *, after: Cursor | None, now: Cursor
    ) -> tuple[Hook, bool]:
        """Create a hook, or replace and enable it; return it, and whether it is new.

        It goes on behind `after`. Without that a new one begins at `now`, and one that was there finishes what it had
        begun.
        """
        listed = None if subscriptions is None else json.dumps(subscriptions)
        query = "SELECT 1 FROM hooks WHERE subscriber = ? AND id = ?"
        is_new = self._db.execute(query, name).fetchone() is None
        if is_new:
            query = "SELECT count(*) FROM hooks WHERE subscriber = ?"
            if self._db.execute(query, (name.subscriber,)).fetchone()[0] >= self._most:
                raise StateError(f"a subscriber can have {self._most} webhooks; delete one first")
            self._db.execute(
                "INSERT INTO hooks (subscriber, id, url, subscriptions, cursor, secret) VALUES (?, ?, ?, ?, ?, ?)",
                (*name, url, listed, str(now), new_secret()),
            )
        self._set(name, url=url, subscriptions=listed, failures=0, next_attempt=None, last_error=None, disabled=None)
        if after is not None:
            self._set(name, cursor=str(after))
            self._db.execute("DELETE FROM deliveries WHERE subscriber = ? AND id = ?", name)
        return self.find(name), is_new

    def find(self, name: Name) -> Hook:
        """Return a hook, or raise the problem of one that is not there."""
        row = self._db.execute("SELECT * FROM hooks WHERE subscriber = ? AND id = ?", name).fetchone()
        if row is None:
            rule = "must be the id of a webhook"
            raise Problem(404, f"there is no webhook {name.id!r}", errors=[fault("id", rule, name.id)])
        return _hook(row)

    def listed(self, subscriber: str, *, after: str, limit: int) -> list[Hook]:
        """Return hooks in the order of their ids, from behind one on."""
        query = "SELECT * FROM hooks WHERE subscriber = ? AND id > ? ORDER BY id LIMIT ?"
        return [_hook(row) for row in self._db.execute(query, (subscriber, after, limit))]

    def enabled(self) -> list[Name]:
        """Return which hooks are to be told."""
        return [Name(*row) for row in self._db.execute("SELECT subscriber, id FROM hooks WHERE disabled IS NULL")]

    def counts(self) -> WebhookCounts:
        """Return how many there are."""
        return WebhookCounts(*self._db.execute("SELECT count(*), count(disabled) FROM hooks").fetchone())

    def delete(self, name: Name) -> None:
        """Forget a hook."""
        self.find(name)
        self._db.execute("DELETE FROM deliveries WHERE subscriber = ? AND id = ?", name)
        self._db.execute("DELETE FROM hooks WHERE subscriber = ? AND id = ?", name)

    def renew(self, name: Name) -> Hook:
        """Give a hook a new secret; the old one is good for a while."""
        old = self.find(name).secret
        self._set(name, secret=new_secret(), old_secret=old, old_until=time.time() + OLD_SECRET_S)
        return self.find(name)

    # -- how far it was told ------------------------------------------------------------------------------------

    def begin(self, name: Name, delivery: Delivery) -> Hook:
        """Fix what is sent next, and return the hook as it is now."""
        row = (*name, delivery.name, delivery.body, str(delivery.upto))
        self._db.execute("INSERT INTO deliveries VALUES (?, ?, ?, ?, ?)", row)
        return self.find(name)

    def under_way(self, name: Name) -> tuple[Hook, Delivery | None]:
        """Return a hook as it is now, and what it has begun to send."""
        hook = self.find(name)
        query = "SELECT name, body, upto FROM deliveries WHERE subscriber = ? AND id = ?"
        row = self._db.execute(query, name).fetchone()
        return hook, None if row is None else Delivery(row[0], row[1], Cursor.read(row[2]))

    def acknowledged(self, name: Name, delivery: Delivery) -> None:
        """Move on behind what was sent."""
        self._db.execute("DELETE FROM deliveries WHERE subscriber = ? AND id = ?", name)
        self._set(name, cursor=str(delivery.upto), failures=0, next_attempt=None, last_error=None)

    def failed(self, name: Name, why: str, *, next_attempt: float | None, disabled: str | None = None) -> None:
        """Note that an attempt failed, and when the next one is; or why there is none."""
        self._db.execute("UPDATE hooks SET failures = failures + 1 WHERE subscriber = ? AND id = ?", name)
        self._set(name, next_attempt=next_attempt, last_error=why, disabled=disabled)

    def disable(self, name: Name, why: str) -> None:
        """Send nothing any more."""
        self._set(name, next_attempt=None, disabled=why)

    def seen(self, hooks: Iterable[tuple[Name, Cursor]]) -> None:
        """Move hooks on that have nothing under way, behind what was not for them."""
        for name, cursor in hooks:
            self._set(name, cursor=str(cursor))

    def _set(self, name: Name, **values: Any) -> None:
        columns = ", ".join(f"{column} = ?" for column in values)
        self._db.execute(f"UPDATE hooks SET {columns} WHERE subscriber = ? AND id = ?", (*values.values(), *name))


def _hook(row: tuple[Any, ...]) -> Hook:
    subscriber, id_, url, subscriptions, cursor, *rest = row
    listed = None if subscriptions is None else tuple(json.loads(subscriptions))
    return Hook(Name(subscriber, id_), url, listed, Cursor.read(cursor), *rest)
