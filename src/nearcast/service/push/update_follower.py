"""Followers: each reads updates from a cursor on, first from the journal, then live from the hub, each update once.

    cursor ──── journal, page by page ────► position at joining ──── queue of the listener ────►

A client that is far behind has no queue: it joins the hub when little is missing. Updates between its cursor and the
position at that moment come from the journal, all later ones from the queue. There is no gap and no overlap.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from nearcast.service.api.problems import Problem, field_error, invalid_field
from nearcast.service.push.hub import Listener
from nearcast.service.store.cursor import Cursor
from nearcast.service.store.journal import JournaledUpdate

if TYPE_CHECKING:
    from nearcast.service.api.context import Service

_PAGE = 500
_PAGE_OF_CONTENTS = 100  # a message may have 130 KB


class UpdateFollower:
    """The position of one client in the updates. As a context manager it leaves the hub at the end."""

    def __init__(
        self,
        service: Service,
        subscriber: str,
        subscriptions: frozenset[str],
        after: str | None,
        *,
        transport: str,
        page: int = _PAGE,
        has_contents: bool = False,
    ) -> None:
        """Start after a cursor, or with the next update; raise if the cursor cannot be followed.

        `next` returns at most `page` updates at a time, with `has_contents` each with its message.
        """
        service.command_loop.check_ready()
        self._service = service
        self._listener = Listener(subscriber, subscriptions)
        self._joined_at: Cursor | None = None
        self._has_contents = has_contents
        self._page = min(page, _PAGE_OF_CONTENTS) if has_contents else page
        self._after = service.hub.position if after is None else Cursor.parse(after)
        self._gauge = service.metrics.push_clients.labels(transport)
        if self._after > service.hub.position:
            raise invalid_field("after", "must not be beyond the last update of this service", after)
        self._check_retained()

    @property
    def after(self) -> Cursor:
        """The cursor of the last update that was returned; a client that resumes from it misses nothing."""
        return self._after

    @property
    def seen(self) -> Cursor:
        """The cursor up to which no update is left for the client, given that it has processed all it received."""
        is_current = self._joined_at is not None and self._after >= self._joined_at and self._listener.is_empty
        return max(self._after, self._service.hub.position) if is_current else self._after

    @property
    def close_reason(self) -> str | None:
        """Why there are no more updates; None while there may be."""
        return self._listener.close_reason

    def __enter__(self) -> Self:
        self._gauge.inc()
        return self

    def __exit__(self, *_: object) -> None:
        self._gauge.dec()
        self._service.hub.leave(self._listener)

    async def greeting(self) -> dict[str, Any]:
        """Return what the client gets first: its cursor, and which of the subscriptions that it named do not exist.

        A subscription may be created later, so that is no error.
        """
        reader, ids = self._service.command_loop.reader, self._listener.subscriptions
        known = await asyncio.to_thread(reader.subscribed, self._listener.subscriber, ids)
        unknown = sorted(ids - known.keys())
        return {"cursor": str(self._after), **({"unknown": unknown} if unknown else {})}

    async def wait_closed(self) -> None:
        """Wait until there are no more updates."""
        await self._listener.closed.wait()

    async def next(self) -> list[JournaledUpdate]:
        """Wait for the next page of updates and return it; it may be empty."""
        page = await self._next_page()
        if page and self._has_contents:
            page = await asyncio.to_thread(self._service.command_loop.reader.with_contents, page)
        return page

    async def _next_page(self) -> list[JournaledUpdate]:
        if self._joined_at is None:
            end = self._service.hub.position
            page = await self._read_journal(end)
            if self._after >= end:
                self._joined_at = self._service.hub.join(self._listener)
            return page
        if self._after < self._joined_at:
            return await self._read_journal(self._joined_at)
        page = await self._listener.take(self._page)
        if page:
            self._after = page[-1].cursor
        return page

    async def _read_journal(self, end: Cursor) -> list[JournaledUpdate]:
        """Return the next page of updates up to a cursor from the journal."""
        found = await asyncio.to_thread(
            self._service.command_loop.reader.updates,
            self._listener.subscriber, after=self._after, up_to=end, limit=self._page,
        )  # fmt: skip
        self._check_retained()  # pruning may have run meanwhile
        self._after = found[-1].cursor if len(found) == self._page else max(end, self._after)
        return [update for update in found if self._listener.includes(update)]

    def _check_retained(self) -> None:
        """Raise a `Problem` if updates after the cursor are deleted."""
        pruned = self._service.command_loop.reader.pruned()
        if pruned > 0 and self._after.command <= pruned:
            rule = f"must belong to a command after {pruned}; earlier updates are not retained"
            raise Problem(410, f"after {rule}", errors=[field_error("after", rule, str(self._after))])
