"""Nearcast: standing subscriptions over a stream of places and words, answered exactly at every moment."""

from nearcast.engine import Engine, Stats, ungroup
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
    NearestSubscription,
    Result,
    SimilaritySubscription,
    SocialSubscription,
    TopKSubscription,
    Update,
)
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.text import Vocabulary, tokenize
from nearcast.window import CountWindow, TimeWindow

__version__ = "0.1.0"

__all__ = [
    "BooleanSubscription",
    "Box",
    "CountWindow",
    "Engine",
    "Explanation",
    "FormatError",
    "InvalidInput",
    "Limits",
    "Message",
    "NearcastError",
    "NearestSubscription",
    "Result",
    "SimilaritySubscription",
    "SocialGraph",
    "SocialSubscription",
    "Space",
    "StateError",
    "Stats",
    "TimeWindow",
    "TopKSubscription",
    "UnknownMessage",
    "UnknownSubscription",
    "Update",
    "Vocabulary",
    "__version__",
    "tokenize",
    "ungroup",
]
