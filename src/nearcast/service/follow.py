"""What did a client miss, and what comes next? Updates from the journal first, then as they happen, each once.

    after ──── journal, page by page ────► position at joining ──── listener's queue ────►

While much is missing nobody queues for the client: it joins the hub when little is left. What lies between its cursor
and the position at that moment comes from the journal, what follows from the queue; there is no gap, and no overlap.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from nearcast.service.hub import Listener
from nearcast.service.journal import Cursor, JournaledUpdate
from nearcast.service.problem import Problem, fault, invalid

if TYPE_CHECKING:
    from nearcast.service.context import Service

_PAGE = 500


class UpdateFollower:
    """One client's way through the updates; a context, in which it is known to the hub."""

    def __init__(
        self,
        service: Service,
        subscriber: str,
        subscriptions: frozenset[str],
        after: str | None,
        *,
        transport: str,
        page: int = _PAGE,
    ) -> None:
        """Begin behind a cursor, or with what comes next; raise the problem of a cursor that cannot be followed.

        It gets so many updates at a time, a `page`, and no more.
        """
        service.command_loop.check_ready()
        self._service = service
        self._listener = Listener(subscriber, subscriptions)
        self._joined_at: Cursor | None = None
        self._page = page
        self._after = service.hub.position if after is None else Cursor.read(after)
        self._gauge = service.meters.clients.labels(transport)
        if self._after > service.hub.position:
            raise invalid("after", "must be a cursor of this service, which has not come that far", after)
        self._check_kept()

    @property
    def after(self) -> Cursor:
        """How far the client has been told; who comes back with this misses nothing."""
        return self._after

    @property
    def seen(self) -> Cursor:
        """How far the client has been told, or there was nothing for it; for who has done with all it got."""
        is_level = self._joined_at is not None and self._after >= self._joined_at and self._listener.is_empty
        return max(self._after, self._service.hub.position) if is_level else self._after

    @property
    def closed(self) -> str | None:
        """Why there will be no more, if so."""
        return self._listener.closed

    def __enter__(self) -> Self:
        self._gauge.inc()
        return self

    def __exit__(self, *_: object) -> None:
        self._gauge.dec()
        self._service.hub.leave(self._listener)

    async def ended(self) -> None:
        """Wait until there will be no more."""
        await self._listener.over.wait()

    async def next(self) -> list[JournaledUpdate]:
        """Return what comes next, when there is something; maybe nothing."""
        if self._joined_at is None:
            end = self._service.hub.position
            page = await self._missed(end)
            if self._after >= end:
                self._joined_at = self._service.hub.join(self._listener)
            return page
        if self._after < self._joined_at:
            return await self._missed(self._joined_at)
        page = await self._listener.take(self._page)
        if page:
            self._after = page[-1].cursor
        return page

    async def _missed(self, end: Cursor) -> list[JournaledUpdate]:
        """Return the next page of what was missed up to a cursor."""
        found = await asyncio.to_thread(
            self._service.command_loop.reader.updates,
            self._listener.subscriber, after=self._after, upto=end, limit=self._page,
        )  # fmt: skip
        self._check_kept()  # also while it was read
        self._after = found[-1].cursor if len(found) == self._page else max(end, self._after)
        return [told for told in found if self._listener.wants(told)]

    def _check_kept(self) -> None:
        """Raise the problem of a cursor behind which updates are gone."""
        pruned = self._service.command_loop.reader.pruned()
        if pruned > 0 and self._after.command <= pruned:
            rule = f"must be of a command after {pruned}; what came before is not kept any more"
            raise Problem(410, f"after {rule}", errors=[fault("after", rule, str(self._after))])
