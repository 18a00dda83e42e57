"""JSON schemas of subscriptions, generated from the fields of all kinds, registered ones included."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from math import isfinite
from operator import or_
from types import FunctionType
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, create_model, model_validator

from nearcast.model import FieldType, Subscription, kinds
from nearcast.service.api.geojson import features_of, plain_body
from nearcast.service.api.schemas import (
    ClusterBody,
    ConditionField,
    IntegerField,
    LocationField,
    NumberField,
    RegionField,
    StrictModel,
    StringField,
    SubscriptionIdField,
    TimeField,
    WordsField,
)

_JSON_TYPES: dict[str, Any] = {
    "region": RegionField,
    "point": LocationField,
    "text": WordsField,
    "condition": ConditionField,
    "id": StringField,
    "integer": IntegerField,
    "number": NumberField,
    "time": TimeField,
}
_SHAPES = {
    "region": "a box [xmin, ymin, xmax, ymax], polygons, or a circle",
    "point": "[x, y]; longitude, latitude",
    "condition": "CQL2 text, or CQL2 JSON, which is stored as text",
    "time": "seconds since the epoch, or a time with its zone",
}


@dataclass(frozen=True)
class SubscriptionSchemas:
    """The types of subscriptions in requests and answers."""

    subscription: Any
    """A subscription of any kind, without its id."""
    named: Any
    """A subscription of any kind, with its id."""
    many: Any
    """A list of named subscriptions, or a feature collection of them."""
    page: Any
    """A page of named subscriptions."""
    overview: Any
    """The named subscriptions in a view, or clusters of them."""


def subscription_schemas() -> SubscriptionSchemas:
    """Return the schemas of all kinds that are known now."""
    named = _any_kind(named=True)
    page = create_model(
        "SubscriptionPage",
        __doc__="A page of subscriptions, ordered by id.",
        subscriptions=(list[named], ...),  # type: ignore[valid-type]
        next=(str | None, Field(description="cursor of the next page; null on the last one")),
        total=(int | None, Field(description="number of subscriptions on all pages; null after the first page")),
        kinds=(
            dict[str, int] | None,
            Field(description="the same number per kind, whatever `kind` is requested; null after the first page"),
        ),
    )
    overview = create_model(
        "SubscriptionOverview",
        __doc__="The subscriptions in a view: all of them, or clusters if there are many.",
        total=(int, Field(description="number of subscriptions in the view")),
        subscriptions=(list[named], Field(description="empty if there are clusters")),  # type: ignore[valid-type]
        clusters=(
            list[ClusterBody],
            Field(description="empty if there are subscriptions; their counts sum up to `total`"),
        ),
    )
    many = Annotated[list[named], Field(min_length=1), BeforeValidator(features_of)]  # type: ignore[valid-type]
    return SubscriptionSchemas(_any_kind(named=False), named, many, page, overview)


def with_body(endpoint: Any, schema: Any) -> Any:
    """Return a copy of an endpoint whose parameter `body` has a schema that exists only at run time."""
    assert isinstance(endpoint, FunctionType)
    copy = FunctionType(endpoint.__code__, endpoint.__globals__, endpoint.__name__, endpoint.__defaults__)
    copy.__doc__, copy.__annotations__ = endpoint.__doc__, {**endpoint.__annotations__, "body": schema}
    return copy


def _any_kind(*, named: bool) -> Any:
    models = (Annotated[_kind_model(kind, named=named), Tag(kind.kind)] for kind in kinds())
    rule = f"must have a kind, one of {[kind.kind for kind in kinds()]}"
    discriminator = Discriminator(_kind_of, custom_error_type="kind", custom_error_message=rule)
    return Annotated[reduce(or_, models), discriminator]


def _kind_of(value: Any) -> Any:
    """Return the kind of a subscription or of a feature."""
    if isinstance(value, dict) and value.get("type") == "Feature":
        value = value.get("properties")
    return value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)


def _kind_model(kind: type[Subscription], *, named: bool) -> Any:
    """Return the schema of a kind, with an id if `named`."""
    fields: dict[str, Any] = {"kind": (Literal[kind.kind], ...)}
    if named:
        fields["id"] = (SubscriptionIdField, ...)
    for name, type_ in kind.all_field_types().items():
        json_type = _JSON_TYPES[type_.form]
        fields[name] = (
            (Annotated[json_type | None, _described(type_)], None)
            if type_.is_optional
            else (Annotated[json_type, _described(type_)], ...)
        )
    validators: Any = {"from_feature": model_validator(mode="before")(partial(plain_body, has_id=named))}
    doc = (kind.__doc__ or "").partition("\n")[0]
    name = f"{'Named' if named else ''}{kind.__name__}"
    return create_model(name, __base__=StrictModel, __doc__=doc, __validators__=validators, **fields)


def _described(type_: FieldType) -> Any:
    """Return the documentation of a field; its bounds are documented here, and checked by the engine."""
    shape = _SHAPES.get(type_.form)
    text = type_.help if shape is None else f"{type_.help.rstrip('.')}, as {shape}"
    bounds = {name: getattr(type_, name, None) for name in ("minimum", "maximum")}
    if type_.form == "integer":
        del bounds["maximum"]  # the end of a slider; greater values are valid
    known = {name: bound for name, bound in bounds.items() if bound is not None and isfinite(bound)}
    return Field(description=text or None, json_schema_extra=known)
