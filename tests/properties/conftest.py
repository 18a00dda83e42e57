"""Threads divide the smallest batches here, so that few rows try all cuts."""

import pytest

from nearcast import worker_pool


@pytest.fixture(autouse=True)
def divide_small_batches(monkeypatch):
    monkeypatch.setattr(worker_pool, "LEAST_S", 1e-12)
