"""What is one run about? Everything that stays the same from its first row to its last, sent to every worker once.

`Job` is what `match` was told; workers make of it the engines, checks and routing they need.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nearcast.engine import Engine
from nearcast.engine.admission import Admission
from nearcast.engine.state import EngineConfig
from nearcast.errors import require
from nearcast.model import Limits, ScoringContext, Subscription
from nearcast.partition import MOST_SHARDS, Routing, Sample
from nearcast.partition.fitting import check_partitioner, fit
from nearcast.partition.serialization import unpack
from nearcast.social import SocialGraph
from nearcast.space import Space
from nearcast.text import TEXT_SIMILARITIES, Vocabulary
from nearcast.window import WindowPolicy


@dataclass(frozen=True)
class Job:
    """The meaning of scores, the rules for rows, and how the work is shared.

    >>> from nearcast import Box
    >>> Job(space=Space(Box(0, 0, 1, 1)), shards=0)
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: shards must be an integer of 1 or more; got 0 (job)
    """

    space: Space
    vocabulary: Vocabulary | None = None
    window: WindowPolicy | None = None
    social: SocialGraph | None = None
    text_similarity: str = "containment"
    partitioner: str = "hash"
    shards: int = 1
    index: str = "auto"
    limits: Limits | None = None
    local: str | None = None
    """A folder of each host for engines between batches; by default one that Spark removes with the application."""
    frames_per_snapshot: int = 50
    """Batches between two snapshots of a shard at most: what a restart may have to do again."""
    fitted: bytes | None = None
    """The routing, see `nearcast.partition.serialization`; one that needs nothing to learn from may be missing."""

    def __post_init__(self) -> None:
        for name in ("shards", "frames_per_snapshot"):
            value = getattr(self, name)
            ok = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            require(ok, name, "must be an integer of 1 or more", value, subject="job")
        require(self.shards <= MOST_SHARDS, "shards", f"must be {MOST_SHARDS} at most", self.shards, subject="job")
        self.config  # noqa: B018 - refuses what no engine would take
        if self.fitted is None:
            check_partitioner(self.partitioner, n_shards=self.shards, subject="job")

    @cached_property
    def config(self) -> EngineConfig:
        """How the engine of a shard is set up."""
        return EngineConfig(
            space=self.space,
            window=self.window,
            text_similarity=self.text_similarity,
            workers=1,
            partitioner="hash",
            index=self.index,
            limits=self.limits or Limits(),
        )

    @cached_property
    def scoring(self) -> ScoringContext:
        """Against what scores are defined."""
        return ScoringContext(
            self.space,
            Vocabulary.with_weights({}) if self.vocabulary is None else self.vocabulary,
            SocialGraph() if self.social is None else self.social,
            TEXT_SIMILARITIES[self.text_similarity],
        )

    @cached_property
    def admission(self) -> Admission:
        """The checks that subscriptions have to pass."""
        return Admission(self.config, self.scoring)

    @cached_property
    def routing(self) -> Routing:
        """Who gets which row."""
        if self.fitted is not None:
            return unpack(self.fitted)
        return fit(self.partitioner, Sample.none(), n_shards=self.shards, in_threads=False).fixed()

    @property
    def moves(self) -> bool:
        """Whether a subscription that keeps results may move from shard to shard."""
        return self.routing.sends_all and not self.routing.by_key

    def check_kind(self, kind: type[Subscription], subject: str) -> None:
        """Raise `InvalidInput` for a kind that keeps results, if several shards would have to keep them together."""
        ok = self.routing.sends_all or not kind.result_policy.is_stateful
        rule = f"must send every message to all shards for kind {kind.kind!r}: no stage merges what replicas keep"
        require(ok, "partitioner", rule, self.partitioner, subject=subject)

    @property
    def options(self) -> dict[str, Any]:
        """What the engine of a shard is made with."""
        return {
            "space": self.space,
            "vocabulary": self.scoring.vocabulary,
            "window": self.window,
            "social": self.scoring.social,
            "text_similarity": self.text_similarity,
            "index": self.index,
            "limits": self.config.limits,
        }

    def new_engine(self) -> Engine:
        """Return the engine of a shard, before anything happened."""
        return Engine(**self.options)

    @cached_property
    def terms(self) -> dict[str, Any]:
        """What has to be the same for a stopped run to go on, as plain values with a name each."""
        vocabulary, edges = self.scoring.vocabulary, sorted(map(repr, self.scoring.social.edges()))
        weights = (vocabulary.ids.tobytes(), vocabulary.idfs.tobytes(), repr(vocabulary.default).encode())
        return {
            "shards": self.shards,
            "partitioner": self.partitioner if self.fitted is None else f"{self.partitioner} {_digest(self.fitted)}",
            "space": repr(self.space),
            "window": repr(self.window),
            "text_similarity": self.text_similarity,
            "vocabulary": _digest(*weights),
            "social": _digest(*(edge.encode() for edge in edges)),
        }

    @cached_property
    def fingerprint(self) -> str:
        """A short name for the terms."""
        return _digest(repr(self.terms).encode())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name in self.__dataclass_fields__}


def _digest(*parts: bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
