"""Registers the plugin for one test, and removes it afterwards."""

import pytest

from extension import plugin
from nearcast.model import kind_registry
from nearcast.partition import registry as partitioner_registry


@pytest.fixture(autouse=True)
def registered():
    """Make the kind and the partitioner known during a test."""
    plugin.register()
    yield
    kind_registry._REGISTERED.pop("latest", None)
    partitioner_registry._REGISTERED.pop("reversed", None)
