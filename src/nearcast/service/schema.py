"""What do requests and answers look like? JSON with the engine's own names.

Here types are checked, and shapes; what values are legal the engine says, so that there is one rule for each. The
kinds of subscription are read off the engine's classes: a new kind is known here at once.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Strict,
    Tag,
    create_model,
    model_validator,
)

from nearcast.errors import WHOLE, is_whole
from nearcast.model import KINDS, Id
from nearcast.service.commands import Body, fields_of
from nearcast.service.geojson import features_of, plain
from nearcast.space import Box, Point
from nearcast.text import Text

ID_PATTERN = r"^[A-Za-z0-9_~:@-][A-Za-z0-9._~:@-]{0,127}$"
ID_RULE = "1 to 128 letters, digits or any of . _ ~ : @ -, no dot first"

TAGS = frozenset({"one", "many", "seconds", "time", *(kind.kind for kind in KINDS)})
"""Where an error was found, these are not the name of a field."""


def _tag_of(**tags: type | tuple[type, ...]) -> Discriminator:
    """Choose what a value is to be by what it looks like, so that there is one error and not one for each choice."""
    first = next(iter(tags))

    def choose(value: Any) -> str:
        return next((tag for tag, types in tags.items() if isinstance(value, types)), first)

    return Discriminator(choose)


def _whole(text: str) -> str:
    """Refuse halves of characters, which JSON can hold and nothing else."""
    if not is_whole(text):
        raise ValueError(WHOLE)
    return text


_Number = Annotated[float, Strict()]
_Whole = Annotated[int, Strict()]
_String = Annotated[str, Strict(), AfterValidator(_whole)]
_Words = Annotated[
    Annotated[_String, Tag("one")] | Annotated[list[_String], Tag("many")],
    _tag_of(one=str, many=list),
]
_Moment = Annotated[
    Annotated[_Number, Tag("seconds")] | Annotated[AwareDatetime, Tag("time")],
    _tag_of(seconds=(int, float), time=(str, datetime)),
]
_Location = Annotated[list[_Number], Field(min_length=2, max_length=2, description="[x, y]; longitude, latitude")]
_SubscriptionId = Annotated[_String, Field(pattern=ID_PATTERN, description=ID_RULE)]

_JSON_OF: dict[Any, Any] = {
    Box: Annotated[list[_Number], Field(min_length=4, max_length=4, description="[xmin, ymin, xmax, ymax]")],
    Point: _Location,
    Text: _Words,
    Id: _String,
    int: _Whole,
    float: _Number,
}
_SHARE = {"minimum": 0, "maximum": 1}
_SAID: dict[str, tuple[str, dict[str, Any]]] = {
    "keywords": ("words; for kind boolean an expression with AND, OR and parentheses", {}),
    "k": ("how many results", {"minimum": 1}),
    "alpha": ("how much nearness counts against words", _SHARE),
    "delta": ("how much words count against nearness", _SHARE),
    "tau": ("what a score has to reach", _SHARE),
    "user": ("whose friends count", {}),
}


class Strictly(BaseModel):
    """JSON in which every field is known."""

    model_config = ConfigDict(extra="forbid")


class MessageBody(Strictly):
    """A message."""

    id: _String
    location: _Location
    text: _Words
    at: _Moment | None = Field(None, description="seconds since the epoch, or a time with its zone")
    place: _String | None = Field(None, description="the point of interest that says it")

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        return plain(value)

    def body(self) -> Body:
        """Return what the journal keeps."""
        said = self.model_dump(exclude_none=True)
        if isinstance(self.at, datetime):
            said["at"] = self.at.timestamp()
        return said


def _model(kind: Any, *, named: bool) -> Any:
    given: dict[str, Any] = {"kind": (Literal[kind.kind], ...)}
    for name, hint in fields_of(kind).items():
        if name != "id":
            said, extra = _SAID.get(name, ("", {}))
            described = Field(..., description=said or None, json_schema_extra=extra)
            given[name] = (Annotated[_JSON_OF[hint], described] if said else _JSON_OF[hint], ...)
        elif named:
            given[name] = (_SubscriptionId, ...)
    name = f"{'Named' if named else ''}{kind.__name__}"
    also: Any = {"of_feature": model_validator(mode="before")(partial(plain, has_id=named))}
    said = (kind.__doc__ or "").partition("\n")[0]
    return create_model(name, __base__=Strictly, __doc__=said, __validators__=also, **given)


def _kind_of(value: Any) -> Any:
    """Return the kind of a subscription, also of a feature."""
    if isinstance(value, dict) and value.get("type") == "Feature":
        value = value.get("properties")
    return value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)


def _any_kind(*, named: bool) -> Any:
    kinds = (Annotated[_model(kind, named=named), Tag(kind.kind)] for kind in KINDS)
    rule = f"must have a kind, one of {[kind.kind for kind in KINDS]}"
    chosen = Discriminator(_kind_of, custom_error_type="kind", custom_error_message=rule)
    return Annotated[reduce(or_, kinds), chosen]


if TYPE_CHECKING:

    class SubscriptionBody(Strictly):
        """A subscription of any kind, whose id is said elsewhere."""

    class NamedSubscriptionBody(Strictly):
        """A subscription of any kind."""

    Subscriptions = list[NamedSubscriptionBody]
    Messages = MessageBody | list[MessageBody]
else:
    SubscriptionBody = _any_kind(named=False)
    NamedSubscriptionBody = _any_kind(named=True)
    Subscriptions = Annotated[list[NamedSubscriptionBody], Field(min_length=1), BeforeValidator(features_of)]
    Messages = Annotated[
        Annotated[MessageBody, Tag("one")] | Annotated[list[MessageBody], Tag("many"), Field(min_length=1)],
        _tag_of(one=dict, many=list),
        BeforeValidator(features_of),
    ]


class Published(BaseModel):
    """What came of messages."""

    command: int = Field(description="the number of the command in the journal")
    messages: int
    seq: int = Field(description="the number of the last message in the stream")
    updates: int | None = Field(description="how many results they changed; null where a job on Spark finds out")


class Line(BaseModel):
    """What was wrong with a line."""

    line: int
    field: str
    rule: str
    value: Any


class Streamed(BaseModel):
    """What came of a stream of messages."""

    messages: int
    rejected: int
    updates: int
    errors: list[Line] = Field(description="the first lines that were rejected")


class Subscribed(BaseModel):
    """What came of subscriptions."""

    command: int
    created: list[str]
    replaced: list[str]
    updates: int | None = Field(description="what is in their results already, and is told; null as with messages")


class Unsubscribed(BaseModel):
    """What came of forgetting a subscription."""

    command: int
    updates: int | None


class SubscriptionPage(BaseModel):
    """Some subscriptions, in the order of their ids."""

    subscriptions: list[NamedSubscriptionBody]
    next: str | None = Field(description="the cursor of the next page, if there is one")


class ResultBody(BaseModel):
    """A message in a result."""

    message: str
    score: float
    location: list[float] | None = Field(description="this and what follows: if the message is still kept")
    text: str | list[str] | None
    at: float | None
    place: str | None


class ResultPage(BaseModel):
    """What a subscription's result holds, best first."""

    subscription: str
    results: list[ResultBody]


class PartBody(BaseModel):
    """One part of a score."""

    name: str
    value: float
    weight: float | None
    note: str
    passes: bool


class ExplanationBody(BaseModel):
    """How a message fares for a subscription."""

    kind: str
    subscription: str
    message: str
    parts: list[PartBody]
    score: float | None
    threshold: float | None
    passes: bool
    reason: str


class WebhookBody(Strictly):
    """Where updates are to be sent."""

    url: _String = Field(description="http or https, of the public internet or a network that the service allows")
    subscriptions: Annotated[list[_SubscriptionId], Field(min_length=1, max_length=1000)] | None = Field(
        None, description="only of these; else of all"
    )
    after: _String | None = Field(
        None, description="a cursor to go on behind; else from now on, or from where it was"
    )


class WebhookState(BaseModel):
    """A webhook, and how it fares."""

    id: str
    url: str
    subscriptions: list[str] | None
    cursor: str = Field(description="what came up to there was acknowledged, or was not for it")
    failures: int = Field(description="in a row")
    next_attempt: float | None = Field(description="when what failed is tried again, in seconds since the epoch")
    last_error: str | None
    disabled: str | None = Field(description="why nothing is sent any more, if so; putting it again enables it")


class NewWebhook(WebhookState):
    """A webhook with its secret, which is shown this once."""

    secret: str


class WebhookPage(BaseModel):
    """Some webhooks, in the order of their ids."""

    webhooks: list[WebhookState]
    next: str | None = Field(description="the cursor of the next page, if there is one")


class NewSecret(BaseModel):
    """A secret, which is shown this once."""

    secret: str
    old_until: float = Field(description="until then the old one signs too, in seconds since the epoch")


class ConfigBody(BaseModel):
    """Where everything is."""

    bounds: list[float]
    metric: str
    max_distance: float
    window_count: int | None
    window_seconds: float | None
    words: list[str] = Field(description="some that are talked about")
    people: list[str] = Field(description="whose friends can count")
    partitioner: str = Field(description="how work is shared among workers")


class RegionBody(BaseModel):
    """A part of space, and whose it is."""

    box: list[float]
    shards: list[int]


class Shards(BaseModel):
    """Who does which part of the work."""

    regions: list[RegionBody]
    loads: list[float]


class PreviewedPart(BaseModel):
    """One part of a score."""

    name: str
    value: float
    weight: float | None
    note: str


class Previewed(BaseModel):
    """A message that a subscription would hold."""

    message: str
    score: float
    location: list[float] | None
    text: str | list[str] | None
    parts: list[PreviewedPart]


class Preview(BaseModel):
    """What a subscription would hold, best first."""

    results: list[Previewed]


class Fault(BaseModel):
    """A broken rule."""

    field: str
    rule: str
    value: Any


class ProblemBody(BaseModel):
    """An error, in the form of RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[Fault] = []
