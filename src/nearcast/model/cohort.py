"""How do subscriptions of one kind come together? Written down in columns; as objects, scorers or a slate on demand.

objects ──┐                       ┌── subscriptions, scorers    what the slow parts ask
          ├── stored columns ─────┤
a table ──┘                       └── slate                     what the fast parts ask
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.model.columns import one_array
from nearcast.model.footprint import Footprints
from nearcast.model.ids import IdColumn
from nearcast.model.meaning import Meaning
from nearcast.model.slate import Slate
from nearcast.model.stored import restore, store
from nearcast.model.subscription import Scorer, Subscription


@dataclass(frozen=True)
class Cohort:
    """Subscriptions of one kind that are taken in together."""

    kind: type[Subscription]
    stored: pa.Table
    """As written down, see `stored`."""
    meaning: Meaning

    def __len__(self) -> int:
        return len(self.stored)

    @classmethod
    def of(cls, subscriptions: Sequence[Subscription], meaning: Meaning) -> Cohort:
        """Gather objects of one kind, at least one."""
        kind = type(subscriptions[0])
        made = cls(kind, store(subscriptions, kind), meaning)
        made.__dict__["subscriptions"] = list(subscriptions)
        return made

    def take(self, rows: npt.NDArray[np.int64]) -> Cohort:
        """Return some of them, in the order given."""
        return Cohort(self.kind, self.stored.take(pa.array(rows)), self.meaning)

    @cached_property
    def ids(self) -> IdColumn:
        """Their ids."""
        names, numbers = (one_array(self.stored[name]) for name in ("id", "id_int"))
        return IdColumn(names, numbers)

    @cached_property
    def subscriptions(self) -> list[Subscription]:
        """The objects."""
        return restore(self.stored, self.kind)

    @cached_property
    def scorers(self) -> list[Scorer]:
        """The reference score of each."""
        return [subscription.bind(self.meaning) for subscription in self.subscriptions]

    @cached_property
    def slate(self) -> Slate:
        """The columns that an index is built from."""
        return self.kind.slate(self.stored, self.meaning.vocabulary)

    @cached_property
    def footprints(self) -> Footprints:
        """What can touch each."""
        return self.kind.footprints(self.slate, self.ids.keys, self.meaning)
