"""JSON schemas of requests and answers, with the field names of the engine.

The schemas check types and shapes. The engine alone decides which values are legal, so each rule exists once. The
schemas of subscriptions are generated from the kinds, see `subscription_schemas`.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    Strict,
    Tag,
    WithJsonSchema,
    model_validator,
)

from nearcast.errors import WHOLE, is_whole
from nearcast.model.where_json import where_of_json
from nearcast.service.api.geojson import features_of, plain_body
from nearcast.service.json_bodies import Body
from nearcast.service.region_json import region_json

ID_PATTERN = r"^[A-Za-z0-9_~:@-][A-Za-z0-9._~:@-]{0,127}$"
ID_RULE = "1 to 128 letters, digits or any of . _ ~ : @ -, not starting with a dot"

MAX_EDGES = 1_000
"""Edges of one request: their updates are written in one commit."""

TAGS = frozenset(
    {"one", "many", "seconds", "time", "cql2_text", "cql2_json", "box", "Polygon", "MultiPolygon", "Feature"}
)
"""Tags of alternatives, which are not names of fields in the location of an error."""


def _by_type(**tags: type | tuple[type, ...]) -> Discriminator:
    """Choose among alternatives by the type of a value, so that there is one error and not one per alternative."""
    first = next(iter(tags))

    def choose(value: Any) -> str:
        return next((tag for tag, types in tags.items() if isinstance(value, types)), first)

    return Discriminator(choose)


def _without_surrogates(text: str) -> str:
    """Reject lone surrogates, which JSON can express and UTF-8 cannot."""
    if not is_whole(text):
        raise ValueError(WHOLE)
    return text


NumberField = Annotated[float, Strict()]
IntegerField = Annotated[int, Strict()]
StringField = Annotated[str, Strict(), AfterValidator(_without_surrogates)]
WordsField = Annotated[
    Annotated[StringField, Tag("one")] | Annotated[list[StringField], Tag("many")],
    _by_type(one=str, many=list),
]
TimeField = Annotated[
    Annotated[NumberField, Tag("seconds")] | Annotated[AwareDatetime, Tag("time")],
    _by_type(seconds=(int, float), time=(str, datetime)),
]
LocationField = Annotated[
    list[NumberField], Field(min_length=2, max_length=2, description="[x, y]; longitude, latitude")
]
PositionField = Annotated[
    list[NumberField], Field(min_length=2, max_length=4, description="[x, y]; heights are ignored")
]
_RingsField = Annotated[list[Annotated[list[PositionField], FailFast()]], FailFast()]


class PointGeometry(BaseModel):
    """A GeoJSON Point."""

    type: Literal["Point"]
    coordinates: PositionField


class PolygonGeometry(BaseModel):
    """A GeoJSON Polygon: its shell, and then its holes. Edges are straight lines in coordinates."""

    type: Literal["Polygon"]
    coordinates: _RingsField


class MultiPolygonGeometry(BaseModel):
    """A GeoJSON MultiPolygon."""

    type: Literal["MultiPolygon"]
    coordinates: Annotated[list[_RingsField], FailFast()]


class CircleProperties(BaseModel):
    """The properties of a circle."""

    radius: NumberField = Field(description="metres on the earth, else units of the plane")


class CircleFeature(BaseModel):
    """A circle: a GeoJSON Feature with a Point and a radius."""

    type: Literal["Feature"]
    geometry: PointGeometry
    properties: CircleProperties


def _form_of_region(value: Any) -> Any:
    if isinstance(value, list):
        return "box"
    return value.get("type") if isinstance(value, dict) else getattr(value, "type", None)


_REGION_RULE = (
    "must be [xmin, ymin, xmax, ymax], a GeoJSON Polygon or MultiPolygon, or a Feature with a Point and a radius"
)
RegionField = Annotated[
    Annotated[list[NumberField], Field(min_length=4, max_length=4), Tag("box")]
    | Annotated[PolygonGeometry, Tag("Polygon")]
    | Annotated[MultiPolygonGeometry, Tag("MultiPolygon")]
    | Annotated[CircleFeature, Tag("Feature")],
    Discriminator(_form_of_region, custom_error_type="region", custom_error_message=_REGION_RULE),
    BeforeValidator(region_json),
]
ConditionField = Annotated[
    Annotated[StringField, Tag("cql2_text")] | Annotated[dict[str, Any], Tag("cql2_json")],
    _by_type(cql2_text=str, cql2_json=dict),
    AfterValidator(lambda value: where_of_json(value) if isinstance(value, dict) else value),
]
_SCALARS = ["number", "string", "boolean", "null"]
SubscriptionIdField = Annotated[StringField, Field(pattern=ID_PATTERN, description=ID_RULE)]


def _is_scalar(value: Any) -> Any:
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise ValueError("must be a number, a string, a boolean or null")
    return _without_surrogates(value) if isinstance(value, str) else value


AttributesField = dict[StringField, Annotated[Any, AfterValidator(_is_scalar), WithJsonSchema({"type": _SCALARS})]]


class StrictModel(BaseModel):
    """JSON without unknown fields."""

    model_config = ConfigDict(extra="forbid")

    def to_json(self) -> Body:
        """Return the fields that have a value, as the journal stores them: times are seconds since the epoch."""
        fields = self.model_dump(exclude_none=True)
        return {name: value.timestamp() if isinstance(value, datetime) else value for name, value in fields.items()}


class MessageBody(StrictModel):
    """A message."""

    id: StringField
    location: LocationField
    text: WordsField
    at: TimeField | None = Field(None, description="seconds since the epoch, or a time with its zone")
    place: StringField | None = Field(None, description="the point of interest that published it")
    expires_at: TimeField | None = Field(None, description="when it leaves every result; later than `at`")
    body: StringField | None = Field(None, description="an opaque text of at most 64 KiB that updates can carry")
    attributes: AttributesField | None = Field(
        None, description="values of attributes that the service declares; one that is missing is null"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_feature(cls, value: Any) -> Any:
        return plain_body(value)


class ReplacingBody(StrictModel):
    """A message without its id, which the path holds."""

    location: LocationField
    text: WordsField
    at: TimeField | None = Field(None, description="seconds since the epoch, or a time with its zone")
    place: StringField | None = Field(None, description="the point of interest that published it")
    expires_at: TimeField | None = Field(None, description="when it leaves every result; later than `at`")
    body: StringField | None = Field(None, description="an opaque text of at most 64 KiB that updates can carry")
    attributes: AttributesField | None = Field(
        None, description="values of attributes that the service declares; one that is missing is null"
    )


if TYPE_CHECKING:
    MessageOrMessages = MessageBody | list[MessageBody]
else:
    MessageOrMessages = Annotated[
        Annotated[MessageBody, Tag("one")] | Annotated[list[MessageBody], Tag("many"), Field(min_length=1)],
        _by_type(one=dict, many=list),
        BeforeValidator(features_of),
    ]


class EdgeBody(StrictModel):
    """An edge of the social graph: a user has been at a place."""

    user: StringField
    place: StringField


if TYPE_CHECKING:
    EdgeOrEdges = EdgeBody | list[EdgeBody]
else:
    EdgeOrEdges = Annotated[
        Annotated[EdgeBody, Tag("one")]
        | Annotated[list[EdgeBody], Tag("many"), Field(min_length=1, max_length=MAX_EDGES)],
        _by_type(one=dict, many=list),
    ]


class PublishAnswer(BaseModel):
    """The answer to a publish request."""

    command: int = Field(description="number of the command in the journal")
    messages: int
    late: int | None = Field(
        description="messages among them that had expired on arrival; null if a job on Spark decides"
    )
    seq: int = Field(description="seq of the last message")
    updates: int | None = Field(description="number of updates; null if a job on Spark computes them")


class RetractAnswer(BaseModel):
    """The answer to the retraction of a message."""

    command: int = Field(description="number of the command in the journal")
    updates: int = Field(description="number of updates")


class EdgesAnswer(BaseModel):
    """The answer to a change of the social graph."""

    command: int = Field(description="number of the command in the journal")
    updates: int = Field(description="number of updates that the change caused")


class RejectedLine(BaseModel):
    """A rejected line of a stream and the rule that it violates."""

    line: int
    field: str
    rule: str
    value: Any


class StreamAnswer(BaseModel):
    """The answer to a stream of messages."""

    messages: int
    late: int = Field(description="messages that had expired on arrival")
    rejected: int
    updates: int
    errors: list[RejectedLine] = Field(description="the first rejected lines")


class SubscribeAnswer(BaseModel):
    """The answer to a subscribe request."""

    command: int
    created: list[str]
    replaced: list[str]
    updates: int | None = Field(description="number of updates for initial results; null if a job computes them")
    hints: dict[str, list[str]] = Field(
        description="by id, what a subscription says and probably does not mean; only ids that have hints"
    )


class UnsubscribeAnswer(BaseModel):
    """The answer to an unsubscribe request."""

    command: int
    updates: int | None


class ResultBody(BaseModel):
    """A message in a result."""

    message: str
    score: float
    location: list[float] | None = Field(description="null, as the fields below, if the message is not retained")
    text: str | list[str] | None
    at: float | None
    place: str | None
    parts: list[PartBody] | None = Field(
        None, description="the parts of the score, if requested; empty if the message is not retained"
    )
    content: MessageBody | None = Field(None, description="the message, if requested; null if it is not retained")


class ResultPage(BaseModel):
    """A page of the current result of a subscription, best first. The result may change between two pages."""

    subscription: str
    total: int = Field(description="number of messages in the result, on all pages")
    results: list[ResultBody]
    next: str | None = Field(description="cursor of the next page; null on the last one")


class PartBody(BaseModel):
    """One part of a score, or one condition."""

    name: str
    value: float
    weight: float | None = Field(description="weight of the part in the score; null for a condition")
    passes: bool = Field(description="false if this part alone excludes the message")
    distance: float | None = Field(
        description="distance of the message; metres on the earth, else units of the plane"
    )
    shared_terms: list[str] | None = Field(description="terms that message and subscription share")
    missing_terms: list[str] | None = Field(description="terms that the message lacks to satisfy the expression")
    excluded_terms: list[str] | None = Field(
        description="terms and phrases that the message holds and must not, or does not hold side by side"
    )
    condition: str | list[str] | None = Field(description="the filter, where it is the condition")
    user: str | None = Field(description="the user of the social graph who connects subscription and place")
    note: str = Field(description="a phrase for people, made from the other fields")


class HighlightBody(BaseModel):
    """A word of a text that gave a term of the subscription."""

    start: int = Field(description="where it begins, in characters; in a list of terms, its position")
    stop: int = Field(description="where it ends")
    word: str = Field(description="as it is written")


class ExplanationBody(BaseModel):
    """The score of a message for a subscription, part by part."""

    kind: str
    subscription: str
    message: str
    parts: list[PartBody]
    score: float | None = Field(description="null if a condition fails")
    threshold: float | None = Field(description="the score to reach; null if every score is enough")
    passes: bool = Field(description="whether the message is in the result, or would be if published now")
    reason: str
    hints: list[str] = Field(description="what the subscription says and probably does not mean")
    highlights: list[HighlightBody] | None = Field(
        description="the words of the text that matched; null if the text is not retained"
    )


class WebhookBody(StrictModel):
    """The target of a webhook."""

    url: StringField = Field(
        description="http or https, on the public internet or in a network that the service allows"
    )
    subscriptions: Annotated[list[SubscriptionIdField], Field(min_length=1, max_length=1000)] | None = Field(
        None, description="the subscriptions whose updates it receives; all if omitted"
    )
    include: Literal["message"] | None = Field(
        None, description="`message` adds to each update its message, as it was published"
    )
    after: StringField | None = Field(
        None,
        description="cursor to continue after; if omitted, a new webhook starts now and an existing one continues",
    )


class WebhookState(BaseModel):
    """The state of a webhook."""

    id: str
    url: str
    subscriptions: list[str] | None
    include: Literal["message"] | None
    cursor: str = Field(description="all updates up to it were acknowledged or not addressed to the webhook")
    failures: int = Field(description="consecutive failed attempts")
    next_attempt: float | None = Field(description="time of the next retry, in seconds since the epoch")
    last_error: str | None
    disabled: str | None = Field(description="why the webhook is disabled; null while enabled. PUT enables it again")


class WebhookWithSecret(WebhookState):
    """A new webhook with its secret, which is not shown again."""

    secret: str


class WebhookPage(BaseModel):
    """A page of webhooks, ordered by id."""

    webhooks: list[WebhookState]
    next: str | None = Field(description="cursor of the next page; null on the last one")


class SecretBody(BaseModel):
    """A new secret, which is not shown again."""

    secret: str
    old_until: float = Field(description="until when the old secret signs too, in seconds since the epoch")


class ConfigBody(BaseModel):
    """The configuration of the service."""

    bounds: list[float] = Field(description="[xmin, ymin, xmax, ymax]")
    metric: str
    max_distance: float = Field(description="the distance at which proximity reaches zero")
    window_count: int | None
    window_seconds: float | None
    terms: list[str] = Field(description="some frequent terms, as suggestions")
    users: list[str] = Field(description="some users of the social graph, as suggestions")
    partitioner: str = Field(description="how subscriptions are distributed over shards")
    analyzer: str = Field(description="how text becomes terms: simple, unicode, or a language")
    attributes: dict[str, str] = Field(
        description="the attributes of messages, and their types: float, int, str or bool"
    )


class FieldBody(BaseModel):
    """A field of a kind, as a form shows it."""

    form: str = Field(description="point, region, text, condition, integer, number, id or time")
    label: str
    help: str
    example: str
    is_optional: bool = Field(description="true if a subscription may be without it")
    minimum: float | None = Field(None, description="start of the slider of a number")
    maximum: float | None = Field(None, description="end of the slider; greater integers may be valid")
    step: float | None = None
    start: float | None = Field(None, description="the initial value")
    ends: list[str] | None = Field(None, description="what both ends of the slider mean")
    operators: list[str] | None = Field(None, description="operators between the words of an expression")


class KindBody(BaseModel):
    """A kind of subscription, as a form shows it."""

    kind: str
    label: str
    help: str
    icon: str = Field(description="SVG path in a square of 16 units")
    is_stateful: bool = Field(description="false if every match is reported once, and no match leaves")
    needs_window: bool
    greater_is_better: bool = Field(description="false if the score is a distance")
    fields: dict[str, FieldBody]


class ReachesBody(BaseModel):
    """How far from each subscription a message can be and still match."""

    reaches: list[float | None] = Field(description="one per subscription; null if there is no limit")


class ClusterBody(BaseModel):
    """Subscriptions that are near each other in a view."""

    location: list[float] = Field(description="[x, y], the mean of the centres of their places")
    count: int
    box: list[float] = Field(description="[xmin, ymin, xmax, ymax], the extent of the centres")


class RegionBody(BaseModel):
    """A part of space and the shards that own it."""

    box: list[float] = Field(description="[xmin, ymin, xmax, ymax]")
    shards: list[int]


class AdjustmentBody(BaseModel):
    """A decision that changed the routing to the load of shards."""

    action: Literal["move", "refit", "retire"] = Field(
        description="cells moved; or a fresh routing took new subscriptions; or the old one retired"
    )
    load_ratio_before: float = Field(description="load of the busiest shard over that of the idlest one")
    load_ratio_after: float = Field(description="the same, had the routing been adjusted before")
    moved_subscriptions: int
    moved_bytes: int
    steps: int = Field(description="cells that were cut, split or moved")


class ShardsBody(BaseModel):
    """The regions and loads of all shards."""

    regions: list[RegionBody] = Field(description="empty if the partitioner does not divide space")
    loads: list[float] = Field(description="number of subscriptions per shard")
    adjustments: int = Field(description="how often the routing was adjusted to the load, as far as it is known")
    last_adjustment: AdjustmentBody | None


class PreviewResult(BaseModel):
    """A message that a subscription would have in its result."""

    message: str
    score: float
    location: list[float] | None
    text: str | list[str] | None
    parts: list[PartBody]


class PreviewBody(BaseModel):
    """The result that a subscription would have, best first."""

    results: list[PreviewResult] = Field(description="at most 100")
    total: int = Field(description="number of messages that the result would hold")
    among: int = Field(description="number of messages that were considered, the newest ones of the window")
    hints: list[str] = Field(description="what the subscription says and probably does not mean")


class FieldError(BaseModel):
    """A violated rule."""

    field: str
    rule: str
    value: Any


class ProblemBody(BaseModel):
    """An error, in the format of RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldError] = []
