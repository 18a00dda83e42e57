"""The options of an engine, spelled once.

`EngineConfig` travels from the command line, the job file, the service and `match` to the engine. `EngineOptions`
types the same options as keyword arguments; a test checks that both agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypedDict

from nearcast.errors import require
from nearcast.index import has_index, index_names
from nearcast.model import NO_ATTRIBUTES, Attributes, Limits, ScoringContext
from nearcast.partition import MAX_SHARDS, Routing
from nearcast.partition.balance.policy import Balance
from nearcast.partition.fitting import check_adjustable, check_partitioner
from nearcast.social import SocialGraph
from nearcast.space import Space
from nearcast.text import (
    DEFAULT_HASH_KEY,
    SIMPLE,
    TEXT_SIMILARITIES,
    HashKey,
    Vocabulary,
    check_hash_key,
    find_analyzer,
)
from nearcast.window import CountWindow, TimeWindow, WindowPolicy


class SharedOptions(TypedDict, total=False):
    """The options that `Engine` and `match` share; see `EngineConfig` for what they mean."""

    space: Space
    vocabulary: Vocabulary | None
    window: WindowPolicy | None
    social: SocialGraph | None
    text_similarity: str
    analyzer: str
    bodies: bool
    attributes: Attributes | Mapping[str, type | str] | None
    index: str
    limits: Limits | None
    hash_key: HashKey | None


class EngineOptions(SharedOptions, total=False):
    """The options of `Engine`."""

    workers: int
    partitioner: str | Routing
    balance: Balance | bool | None


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """How an engine is set up.

    >>> from nearcast import Box
    >>> EngineConfig(space=Space(Box(0, 0, 1, 1)), workers=0)
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: workers must be an integer of 1 or more; got 0 (engine)
    """

    space: Space
    vocabulary: Vocabulary = field(default_factory=lambda: Vocabulary.with_weights({}))
    """Term weights; by default every term weighs the same."""
    window: WindowPolicy | None = None
    """How long messages stay; kinds that need a window cannot be subscribed without one."""
    social: SocialGraph = field(default_factory=SocialGraph)
    text_similarity: str = "containment"
    """The text function of kind `similarity`."""
    analyzer: str = SIMPLE.name
    """How text becomes terms: `simple`, `unicode`, or a language such as `english`; see `nearcast.analyze`."""
    bodies: bool = False
    """Keep the bodies of messages as long as the messages, and return them with every update that is an enter."""
    attributes: Attributes = NO_ATTRIBUTES
    """The attributes of messages, by name and type: `{"price": float, "category": str}`; `where` may test them."""
    workers: int = 1
    """Threads."""
    partitioner: str | Routing = "hash"
    """How workers share the work: a name, "auto" for the best on the first subscriptions, or a fitted routing. With
    one that sends every message to all, such as `hash`, they share indexes and window, and divide the messages."""
    balance: Balance | None = None
    """Measure the load of workers now and then, and move subscriptions from the busiest to the idlest: True, or a
    `Balance` that says when and how; it needs a partitioner whose work can be divided anew. Workers that see every
    message need none: each takes the next piece as it becomes free."""
    index: str = "auto"
    """One index for all kinds, such as "scan"; "auto" takes the fastest for each kind."""
    limits: Limits = field(default_factory=Limits)
    hash_key: HashKey = field(default=DEFAULT_HASH_KEY, repr=False)
    """16 secret bytes under which terms and ids are hashed; the default makes runs repeatable. Where strangers choose
    words and ids, draw one with `secrets.token_bytes(16)`."""

    def __post_init__(self) -> None:
        require(isinstance(self.space, Space), "space", "must be a Space", self.space, subject="engine")
        known = self.window is None or isinstance(self.window, (CountWindow, TimeWindow))
        require(known, "window", "must be a CountWindow, a TimeWindow or None", self.window, subject="engine")
        require(isinstance(self.limits, Limits), "limits", "must be Limits", self.limits, subject="engine")
        ok = isinstance(self.workers, int) and not isinstance(self.workers, bool) and self.workers >= 1
        require(ok, "workers", "must be an integer of 1 or more", self.workers, subject="engine")
        fits = self.workers <= MAX_SHARDS
        require(fits, "workers", f"must be at most {MAX_SHARDS}", self.workers, subject="engine")
        check_partitioner(self.partitioner, n_shards=self.workers, subject="engine")
        object.__setattr__(self, "balance", Balance.of(self.balance, subject="engine"))
        if self.balance is not None:
            check_adjustable(self.partitioner, subject="engine", is_refitted=self.balance.refit_every > 0)
        names = [*TEXT_SIMILARITIES]
        known = self.text_similarity in names
        require(known, "text_similarity", f"must be one of {names}", self.text_similarity, subject="engine")
        find_analyzer(self.analyzer, subject="engine")
        object.__setattr__(self, "attributes", Attributes.of(self.attributes))
        require(isinstance(self.bodies, bool), "bodies", "must be True or False", self.bodies, subject="engine")
        known = has_index(self.index)
        require(known, "index", f"must be one of {index_names()}", self.index, subject="engine")
        check_hash_key(self.hash_key, subject="engine")
        vocabulary = self.vocabulary.with_analyzer(self.analyzer).with_key(self.hash_key)
        object.__setattr__(self, "vocabulary", vocabulary)

    @classmethod
    def of(cls, options: SharedOptions) -> EngineConfig:
        """Return the configuration of keyword arguments; None stands for the default."""
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        require("space" in given, "space", "must be a Space", None, subject="engine")
        return cls(**given)

    @cached_property
    def scoring(self) -> ScoringContext:
        """The context in which scores are defined."""
        text_similarity = TEXT_SIMILARITIES[self.text_similarity]
        return ScoringContext(self.space, self.vocabulary, self.social, text_similarity, self.attributes)

    def with_own_graph(self) -> EngineConfig:
        """Return the configuration with a copy of the social graph, so that an engine may change its edges."""
        return replace(self, social=self.social.copy())
