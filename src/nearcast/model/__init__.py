"""WHAT: messages, the five kinds of subscription with their reference meaning, and how both travel."""

from nearcast.model.batch import MessageBatch, check_sizes
from nearcast.model.boolean import BooleanSubscription
from nearcast.model.document import Document
from nearcast.model.explanation import Explanation, Part
from nearcast.model.footprint import Footprint, Footprints
from nearcast.model.id_column import IdColumn
from nearcast.model.identity import Id, check_id, id_key, is_id
from nearcast.model.limits import Limits
from nearcast.model.matches import Matches
from nearcast.model.message import Message
from nearcast.model.nearest import NearestSubscription
from nearcast.model.scoring import ScoringContext
from nearcast.model.similarity import SimilaritySubscription
from nearcast.model.social import SocialSubscription
from nearcast.model.subscription import ResultPolicy, Scorer, Subscription
from nearcast.model.subscription_batch import SubscriptionBatch
from nearcast.model.timestamps import NO_TIME, Timestamp, to_seconds, to_us
from nearcast.model.topk import TopKSubscription
from nearcast.model.update import ENTER, LEAVE, Change, Result, Update

KINDS: tuple[type[Subscription], ...] = (
    BooleanSubscription,
    SimilaritySubscription,
    TopKSubscription,
    NearestSubscription,
    SocialSubscription,
)

__all__ = [
    "ENTER",
    "KINDS",
    "LEAVE",
    "NO_TIME",
    "BooleanSubscription",
    "Change",
    "Document",
    "Explanation",
    "Footprint",
    "Footprints",
    "Id",
    "IdColumn",
    "Limits",
    "Matches",
    "Message",
    "MessageBatch",
    "NearestSubscription",
    "Part",
    "Result",
    "ResultPolicy",
    "Scorer",
    "ScoringContext",
    "SimilaritySubscription",
    "SocialSubscription",
    "Subscription",
    "SubscriptionBatch",
    "Timestamp",
    "TopKSubscription",
    "Update",
    "check_id",
    "check_sizes",
    "id_key",
    "is_id",
    "to_seconds",
    "to_us",
]
