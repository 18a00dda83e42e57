"""Nearcast matches a stream of geotagged messages against standing queries and emits every result change, exactly."""

from nearcast.engine import Engine, EngineConfig, Stats, ungroup
from nearcast.errors import (
    FormatError,
    InvalidInput,
    NearcastError,
    StateError,
    UnknownMessage,
    UnknownSubscription,
)
from nearcast.model import (
    BooleanSubscription,
    Explanation,
    Limits,
    Message,
    MessageBatch,
    NearestSubscription,
    Preview,
    Result,
    ScorePart,
    SimilaritySubscription,
    SocialSubscription,
    Subscription,
    TopKSubscription,
    Update,
    register_kind,
)
from nearcast.partition import Partitioner, Region, Routing, register_partitioner
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.text import Highlight, Vocabulary, analyze, tokenize
from nearcast.window import CountWindow, TimeWindow, WindowPolicy

__version__ = "0.1.0"

__all__ = [
    "BooleanSubscription",
    "Box",
    "CountWindow",
    "Engine",
    "EngineConfig",
    "Explanation",
    "FormatError",
    "Highlight",
    "InvalidInput",
    "Limits",
    "Message",
    "MessageBatch",
    "NearcastError",
    "NearestSubscription",
    "Partitioner",
    "Preview",
    "Region",
    "Result",
    "Routing",
    "ScorePart",
    "SimilaritySubscription",
    "SocialGraph",
    "SocialSubscription",
    "Space",
    "StateError",
    "Stats",
    "Subscription",
    "TimeWindow",
    "TopKSubscription",
    "UnknownMessage",
    "UnknownSubscription",
    "Update",
    "Vocabulary",
    "WindowPolicy",
    "__version__",
    "analyze",
    "register_kind",
    "register_partitioner",
    "tokenize",
    "ungroup",
]
