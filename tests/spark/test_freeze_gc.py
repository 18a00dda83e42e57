"""A Python worker freezes its objects after its first task, and only then."""

import gc

import pytest

from nearcast.spark import freeze_gc


@pytest.fixture
def fresh():
    freeze_gc._freeze.cache_clear()
    before = gc.get_freeze_count()
    yield before
    gc.unfreeze()


def test_objects_that_exist_after_the_first_task_are_not_collected(fresh):
    answers = freeze_gc.freezing_gc(iter([1, 2]))
    assert next(answers) == 1
    assert gc.get_freeze_count() == fresh  # the task is still running
    assert list(answers) == [2]
    assert gc.get_freeze_count() > fresh


def test_later_tasks_freeze_nothing(fresh):
    list(freeze_gc.freezing_gc([]))
    gc.unfreeze()
    list(freeze_gc.freezing_gc([1]))
    assert gc.get_freeze_count() == 0
