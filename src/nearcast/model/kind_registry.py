"""The registry of kinds: the five built in, those of installed packages, and those registered by a call.

A package adds a kind through an entry point, as pytest plugins do:

    [project.entry-points."nearcast.kinds"]
    corridor = "my_package:CorridorSubscription"

Entry points are loaded when a kind is first looked up.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from nearcast.errors import InvalidInput, require
from nearcast.model.boolean import BooleanSubscription
from nearcast.model.nearest import NearestSubscription
from nearcast.model.result_policy import RESULT_POLICIES
from nearcast.model.similarity import SimilaritySubscription
from nearcast.model.social import SocialSubscription
from nearcast.model.subscription import Subscription
from nearcast.model.topk import TopKSubscription

ENTRY_POINTS = "nearcast.kinds"

BUILT_IN: tuple[type[Subscription], ...] = (
    BooleanSubscription,
    SimilaritySubscription,
    TopKSubscription,
    NearestSubscription,
    SocialSubscription,
)
"""The kinds that Nearcast has indexes for."""

_REGISTERED: dict[str, type[Subscription]] = {}


def register_kind(kind: type[Subscription]) -> None:
    """Make a kind available to engines, jobs and services of this process.

    Registering a class of the same name again replaces it, so that a module may be imported twice. The name of a
    built-in kind is refused.
    """
    ok = isinstance(kind, type) and issubclass(kind, Subscription)
    require(ok, "kind", "must be a subclass of Subscription", kind)
    policy, policies = kind.result_policy, sorted(known.name for known in RESULT_POLICIES)
    require(policy in RESULT_POLICIES, "result_policy", f"must be one of {policies}", policy, subject=kind.__name__)
    counted = not policy.is_stateful or "k" in kind.field_types()
    require(counted, "k", "must be a field of a stateful kind", sorted(kind.field_types()), subject=kind.__name__)
    taken = [known.kind for known in BUILT_IN]
    require(kind.kind not in taken, "kind", f"must not be one of {taken}", kind.kind, subject=kind.__name__)
    _REGISTERED[kind.kind] = kind


def registered_kinds() -> tuple[type[Subscription], ...]:
    """Return the kinds that are not built in."""
    _load_entry_points()
    return tuple(_REGISTERED.values())


def kinds() -> tuple[type[Subscription], ...]:
    """Return every kind, the built-in ones first.

    >>> [kind.kind for kind in kinds()][:2]
    ['boolean', 'similarity']
    """
    return BUILT_IN + registered_kinds()


def find_kind(name: object, *, subject: str = "") -> type[Subscription]:
    """Return the kind of a name, or raise `InvalidInput`.

    >>> find_kind("circle")
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: kind must be one of ['boolean', ..., 'topk']; got 'circle'
    """
    by_name = {kind.kind: kind for kind in kinds()}
    if not isinstance(name, str) or name not in by_name:
        raise InvalidInput("kind", f"must be one of {sorted(by_name)}", name, subject=subject)
    return by_name[name]


@cache
def _load_entry_points() -> None:
    for entry in entry_points(group=ENTRY_POINTS):
        register_kind(entry.load())
