"""The store of webhooks: their URLs, cursors and pending deliveries, in one SQLite file.

    hooks       subscriber, id, url, ...          cursor: everything up to it was acknowledged or not addressed to it
    deliveries  subscriber, id, name, body, upto  the next delivery, stored before its first attempt

A delivery is on disk before its first attempt and is deleted in the transaction that moves the cursor. All calls run
in one thread of their own, in order; when a call returns, its changes are on disk (WAL, synchronous=FULL).
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
from nearcast.service.api.problems import Problem, field_error
from nearcast.service.push.webhooks.signatures import new_secret
from nearcast.service.store.cursor import Cursor
from nearcast.service.store.journal import connect, opening

VERSION = 2
OLD_SECRET_TTL_S = 24 * 3600.0

_TABLES = """
CREATE TABLE hooks (
    subscriber TEXT, id TEXT, url TEXT NOT NULL, subscriptions TEXT, cursor TEXT NOT NULL,
    secret TEXT NOT NULL, old_secret TEXT, old_until REAL NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0, next_attempt REAL, last_error TEXT, disabled TEXT,
    has_contents INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (subscriber, id)
) WITHOUT ROWID;
CREATE TABLE deliveries (
    subscriber TEXT, id TEXT, name TEXT NOT NULL, body BLOB NOT NULL, upto TEXT NOT NULL, PRIMARY KEY (subscriber, id)
) WITHOUT ROWID;
"""
_P = ParamSpec("_P")
_T = TypeVar("_T")


class WebhookKey(NamedTuple):
    """Identifies a webhook; an id is unique per subscriber."""

    subscriber: str
    id: str


@dataclass(frozen=True)
class Webhook:
    """The state of a webhook."""

    key: WebhookKey
    url: str
    subscriptions: tuple[str, ...] | None
    """The subscriptions whose updates it receives; None for all of the subscriber."""
    cursor: Cursor
    secret: str
    old_secret: str | None
    old_until: float
    failures: int
    """Consecutive failed attempts."""
    next_attempt: float | None
    last_error: str | None
    disabled: str | None
    """Why nothing is sent any more; None while it is enabled."""
    has_contents: int
    """1 if updates are sent with their messages, else 0."""

    def secrets(self, *, now: float) -> list[str]:
        """Return the valid secrets, newest first."""
        is_valid = self.old_secret is not None and now < self.old_until
        return [self.secret, *([self.old_secret] if self.old_secret is not None and is_valid else [])]


class Delivery(NamedTuple):
    """A batch of updates to send."""

    id: str
    body: bytes
    up_to: Cursor


class WebhookCounts(NamedTuple):
    """How many webhooks exist, and how many of them are disabled."""

    webhooks: int
    disabled: int


class WebhookStore:
    """Reads and writes webhooks; callers run its methods through `call`, in one thread."""

    def __init__(self, file: Path, *, max_per_subscriber: int = 100) -> None:
        """Open or create a store."""
        file.touch(mode=0o600)  # it contains secrets
        self._max_per_subscriber = max_per_subscriber
        self._db = connect(file)
        try:
            with opening(file):
                self._create(file)
        except BaseException:
            self._db.close()
            raise
        self._thread = ThreadPoolExecutor(1, "webhook-store")

    def _create(self, file: Path) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                for statement in _TABLES.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {VERSION}")
        elif version != VERSION:
            raise FormatError(f"{file} must be a webhook store of version {VERSION}; got version {version}")

    def close(self) -> None:
        """Finish pending calls and close the file."""
        self._thread.shutdown()
        self._db.close()

    async def call(
        self, method: Callable[Concatenate[WebhookStore, _P], _T], *args: _P.args, **options: _P.kwargs
    ) -> _T:
        """Run a method of the store in its thread, as one transaction."""

        def run() -> _T:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                return method(self, *args, **options)

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    # -- webhooks -----------------------------------------------------------------------------------------------

    def put(
        self,
        key: WebhookKey,
        url: str,
        subscriptions: list[str] | None,
        *,
        after: Cursor | None,
        now: Cursor,
        has_contents: bool = False,
    ) -> tuple[Webhook, bool]:
        """Create a webhook, or replace and enable it; return it, and whether it is new.

        It continues after the cursor `after`. Without that, a new webhook starts at `now`, and an existing one first
        finishes its pending delivery.
        """
        ids = None if subscriptions is None else json.dumps(subscriptions)
        query = "SELECT 1 FROM hooks WHERE subscriber = ? AND id = ?"
        is_new = self._db.execute(query, key).fetchone() is None
        if is_new:
            query = "SELECT count(*) FROM hooks WHERE subscriber = ?"
            if self._db.execute(query, (key.subscriber,)).fetchone()[0] >= self._max_per_subscriber:
                raise StateError(f"a subscriber can have {self._max_per_subscriber} webhooks; delete one first")
            self._db.execute(
                "INSERT INTO hooks (subscriber, id, url, subscriptions, cursor, secret) VALUES (?, ?, ?, ?, ?, ?)",
                (*key, url, ids, str(now), new_secret()),
            )
        self._set(key, url=url, subscriptions=ids, has_contents=has_contents)
        self._set(key, failures=0, next_attempt=None, last_error=None, disabled=None)
        if after is not None:
            self._set(key, cursor=str(after))
            self._db.execute("DELETE FROM deliveries WHERE subscriber = ? AND id = ?", key)
        return self.get(key), is_new

    def get(self, key: WebhookKey) -> Webhook:
        """Return a webhook, or raise a `Problem` if it does not exist."""
        row = self._db.execute("SELECT * FROM hooks WHERE subscriber = ? AND id = ?", key).fetchone()
        if row is None:
            rule = "must be the id of a webhook"
            raise Problem(404, f"there is no webhook {key.id!r}", errors=[field_error("id", rule, key.id)])
        return _webhook(row)

    def list_page(self, subscriber: str, *, after: str, limit: int) -> list[Webhook]:
        """Return webhooks ordered by id, starting after an id."""
        query = "SELECT * FROM hooks WHERE subscriber = ? AND id > ? ORDER BY id LIMIT ?"
        return [_webhook(row) for row in self._db.execute(query, (subscriber, after, limit))]

    def enabled(self) -> list[WebhookKey]:
        """Return the keys of all enabled webhooks."""
        query = "SELECT subscriber, id FROM hooks WHERE disabled IS NULL"
        return [WebhookKey(*row) for row in self._db.execute(query)]

    def counts(self) -> WebhookCounts:
        """Return the number of webhooks."""
        return WebhookCounts(*self._db.execute("SELECT count(*), count(disabled) FROM hooks").fetchone())

    def delete(self, key: WebhookKey) -> None:
        """Delete a webhook."""
        self.get(key)
        self._db.execute("DELETE FROM deliveries WHERE subscriber = ? AND id = ?", key)
        self._db.execute("DELETE FROM hooks WHERE subscriber = ? AND id = ?", key)

    def renew_secret(self, key: WebhookKey) -> Webhook:
        """Give a webhook a new secret; the old one stays valid for a day."""
        old = self.get(key).secret
        self._set(key, secret=new_secret(), old_secret=old, old_until=time.time() + OLD_SECRET_TTL_S)
        return self.get(key)

    # -- deliveries ---------------------------------------------------------------------------------------------

    def begin_delivery(self, key: WebhookKey, delivery: Delivery) -> Webhook:
        """Store the next delivery and return the current webhook."""
        row = (*key, delivery.id, delivery.body, str(delivery.up_to))
        self._db.execute("INSERT INTO deliveries VALUES (?, ?, ?, ?, ?)", row)
        return self.get(key)

    def pending_delivery(self, key: WebhookKey) -> tuple[Webhook, Delivery | None]:
        """Return the current webhook and its stored delivery, if there is one."""
        webhook = self.get(key)
        query = "SELECT name, body, upto FROM deliveries WHERE subscriber = ? AND id = ?"
        row = self._db.execute(query, key).fetchone()
        return webhook, None if row is None else Delivery(row[0], row[1], Cursor.parse(row[2]))

    def acknowledge(self, key: WebhookKey, delivery: Delivery) -> None:
        """Delete a delivery and move the cursor after its updates."""
        self._db.execute("DELETE FROM deliveries WHERE subscriber = ? AND id = ?", key)
        self._set(key, cursor=str(delivery.up_to), failures=0, next_attempt=None, last_error=None)

    def record_failure(
        self, key: WebhookKey, reason: str, *, next_attempt: float | None, disabled: str | None = None
    ) -> None:
        """Record a failed attempt and the time of the next one, or why the webhook is disabled."""
        self._db.execute("UPDATE hooks SET failures = failures + 1 WHERE subscriber = ? AND id = ?", key)
        self._set(key, next_attempt=next_attempt, last_error=reason, disabled=disabled)

    def disable(self, key: WebhookKey, reason: str) -> None:
        """Disable a webhook."""
        self._set(key, next_attempt=None, disabled=reason)

    def move_idle(self, cursors: Iterable[tuple[WebhookKey, Cursor]]) -> None:
        """Move the cursors of webhooks without a pending delivery over updates that are not addressed to them."""
        for key, cursor in cursors:
            self._set(key, cursor=str(cursor))

    def _set(self, key: WebhookKey, **values: Any) -> None:
        columns = ", ".join(f"{column} = ?" for column in values)
        self._db.execute(f"UPDATE hooks SET {columns} WHERE subscriber = ? AND id = ?", (*values.values(), *key))


def _webhook(row: tuple[Any, ...]) -> Webhook:
    subscriber, id_, url, subscriptions, cursor, *rest = row
    ids = None if subscriptions is None else tuple(json.loads(subscriptions))
    return Webhook(WebhookKey(subscriber, id_), url, ids, Cursor.parse(cursor), *rest)
