"""How do subscriptions of one kind come together? As objects, and as scorers and columns once someone asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from nearcast.model.meaning import Meaning
from nearcast.model.slate import Slate
from nearcast.model.subscription import Scorer, Subscription


@dataclass(frozen=True)
class Cohort:
    """Subscriptions of one kind that are taken in together."""

    subscriptions: Sequence[Subscription]
    meaning: Meaning

    def __len__(self) -> int:
        return len(self.subscriptions)

    @cached_property
    def scorers(self) -> list[Scorer]:
        """The reference score of each."""
        return [subscription.bind(self.meaning) for subscription in self.subscriptions]

    @cached_property
    def slate(self) -> Slate:
        """The columns an index is built from; a cohort of nobody has none."""
        return type(self.subscriptions[0]).slate(self.subscriptions, self.meaning.vocabulary)
