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
from nearcast.partition import Partitioner, Routing, ShardArea, register_partitioner
from nearcast.partition.balance.adjustment import Adjustment
from nearcast.partition.balance.policy import Balance
from nearcast.social import SocialGraph
from nearcast.space import Box, Circle, MultiPolygon, Polygon, Region, Space
from nearcast.text import Highlight, Vocabulary, analyze, tokenize
from nearcast.window import CountWindow, TimeWindow, WindowPolicy

__version__ = "0.1.0"

__all__ = [
    "Adjustment",
    "Balance",
    "BooleanSubscription",
    "Box",
    "Circle",
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
    "MultiPolygon",
    "NearcastError",
    "NearestSubscription",
    "Partitioner",
    "Polygon",
    "Preview",
    "Region",
    "Result",
    "Routing",
    "ScorePart",
    "ShardArea",
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
