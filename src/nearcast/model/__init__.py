"""WHAT: messages, the five kinds of subscription with their reference meaning, and how both travel."""

from nearcast.model.batch import MessageBatch, check_sizes
from nearcast.model.boolean import BooleanSubscription
from nearcast.model.cohort import Cohort
from nearcast.model.document import Document
from nearcast.model.explanation import Explanation, Part
from nearcast.model.footprint import Footprint, Footprints
from nearcast.model.identity import Id, check_id, id_key, is_id
from nearcast.model.ids import IdColumn
from nearcast.model.limits import Limits
from nearcast.model.matches import Matches
from nearcast.model.meaning import Meaning
from nearcast.model.message import Message
from nearcast.model.moment import NO_TIME, Moment, to_seconds, to_us
from nearcast.model.nearest import NearestSubscription
from nearcast.model.similarity import SimilaritySubscription
from nearcast.model.social import SocialSubscription
from nearcast.model.subscription import Keeps, Scorer, Subscription
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
    "Cohort",
    "Document",
    "Explanation",
    "Footprint",
    "Footprints",
    "Id",
    "IdColumn",
    "Keeps",
    "Limits",
    "Matches",
    "Meaning",
    "Message",
    "MessageBatch",
    "Moment",
    "NearestSubscription",
    "Part",
    "Result",
    "Scorer",
    "SimilaritySubscription",
    "SocialSubscription",
    "Subscription",
    "TopKSubscription",
    "Update",
    "check_id",
    "check_sizes",
    "id_key",
    "is_id",
    "to_seconds",
    "to_us",
]
