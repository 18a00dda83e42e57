"""Messages, the kinds of subscription with their reference scores, and the columns in which both travel."""

from nearcast.model.attributes import NO_ATTRIBUTES, Attributes
from nearcast.model.batch import MessageBatch, check_sizes
from nearcast.model.boolean import BooleanSubscription
from nearcast.model.document import Document
from nearcast.model.explanation import Explanation, Preview, ScorePart
from nearcast.model.fields import FieldType
from nearcast.model.footprint import Footprint, Footprints
from nearcast.model.id_column import IdColumn
from nearcast.model.identity import Id, check_id, id_key, is_id, plain_id
from nearcast.model.kind_registry import BUILT_IN as KINDS
from nearcast.model.kind_registry import find_kind, kinds, register_kind, registered_kinds
from nearcast.model.limits import Limits
from nearcast.model.matches import Matches
from nearcast.model.message import Message
from nearcast.model.nearest import NearestSubscription
from nearcast.model.result_policy import BEST_EVER, BEST_IN_WINDOW, MATCHES, ResultPolicy
from nearcast.model.scoring import ScoringContext
from nearcast.model.similarity import SimilaritySubscription
from nearcast.model.social import SocialSubscription
from nearcast.model.subscription import COMMON_FIELDS, Scorer, Subscription
from nearcast.model.subscription_batch import SubscriptionBatch
from nearcast.model.timestamps import NEVER, NO_TIME, Timestamp, to_end_us, to_seconds, to_us
from nearcast.model.topk import TopKSubscription
from nearcast.model.update import ENTER, LEAVE, Change, Result, Update

__all__ = [
    "BEST_EVER",
    "BEST_IN_WINDOW",
    "COMMON_FIELDS",
    "ENTER",
    "KINDS",
    "LEAVE",
    "MATCHES",
    "NEVER",
    "NO_ATTRIBUTES",
    "NO_TIME",
    "Attributes",
    "BooleanSubscription",
    "Change",
    "Document",
    "Explanation",
    "FieldType",
    "Footprint",
    "Footprints",
    "Id",
    "IdColumn",
    "Limits",
    "Matches",
    "Message",
    "MessageBatch",
    "NearestSubscription",
    "Preview",
    "Result",
    "ResultPolicy",
    "ScorePart",
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
    "find_kind",
    "id_key",
    "is_id",
    "kinds",
    "plain_id",
    "register_kind",
    "registered_kinds",
    "to_end_us",
    "to_seconds",
    "to_us",
]
