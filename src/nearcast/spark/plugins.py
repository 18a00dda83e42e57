"""Registered kinds and partitioners on their way to Spark's workers.

A worker is a process of its own, often on another host, that has registered nothing. Classes travel by value, so that
a kind defined in a script or a notebook works without being installed there.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from nearcast.model import registered_kinds
from nearcast.partition import registered_partitioners

_cloudpickle: Any = import_module("pyspark.cloudpickle")  # without type hints


def pack_plugins() -> bytes | None:
    """Return what is registered in this process as bytes; None if nothing is."""
    kinds, partitioners = registered_kinds(), registered_partitioners()
    if not kinds and not partitioners:
        return None
    for kind in kinds:
        kind.field_types()  # travels with the class; a worker cannot evaluate the annotations
    classes = [*kinds, *(type(partitioner) for partitioner in partitioners)]
    modules = {sys.modules[class_.__module__] for class_ in classes if class_.__module__ != "__main__"}
    new = [module for module in modules if module.__name__ not in _cloudpickle.list_registry_pickle_by_value()]
    for module in new:
        _cloudpickle.register_pickle_by_value(module)
    try:
        packed: bytes = _cloudpickle.dumps((kinds, partitioners))
        return packed
    finally:
        for module in new:
            _cloudpickle.unregister_pickle_by_value(module)
