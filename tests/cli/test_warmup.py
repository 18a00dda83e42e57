"""Kernels are compiled in parallel before a command starts, once, with progress."""

import subprocess
from types import SimpleNamespace

import pytest

from nearcast.cli import warmup
from nearcast.model import KINDS


@pytest.fixture
def marker(tmp_path, monkeypatch):
    monkeypatch.setattr(warmup, "_marker", lambda: tmp_path / "warm")
    return tmp_path / "warm"


class Started:
    """A process that ends at once, or only when it is killed."""

    def __init__(self, code):
        self.returncode = code

    def poll(self):
        return self.returncode

    def kill(self):
        self.returncode = -9

    def wait(self):
        assert self.returncode is not None


@pytest.fixture
def processes(monkeypatch):
    """The kinds and processes that are started; `code` is their exit code, None while they run."""
    started = SimpleNamespace(code=0, all={})

    def start(command, **options):
        return started.all.setdefault(command[-1], Started(started.code))

    monkeypatch.setattr(subprocess, "Popen", start)
    return started


def test_every_kind_is_compiled_once_in_a_process_of_its_own(marker, processes):
    lines = []
    warmup.warm_kinds(lines.append)
    assert sorted(processes.all) == sorted(kind.kind for kind in KINDS)
    assert lines[0].endswith("0 of 5 kinds done") and lines[-1].endswith("5 of 5 kinds done")
    assert marker.exists()
    processes.all.clear()
    warmup.warm_kinds(lambda line: pytest.fail("nothing is compiled again, and nothing said"))
    assert not processes.all
    assert warmup.KindCompiler().poll() is None


def test_a_failed_process_leaves_no_marker(marker, processes):
    processes.code = 1
    warmup.warm_kinds(lambda line: None)
    assert not marker.exists()


def test_no_more_processes_than_cores_run_and_none_survives(marker, processes, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    processes.code = None
    with warmup.KindCompiler() as compiler:
        assert compiler.poll().endswith("0 of 5 kinds done")
        assert compiler.poll() is None
        assert len(processes.all) == 2 and not compiler.is_done
    assert [one.returncode for one in processes.all.values()] == [-9, -9]
    assert not marker.exists()


@pytest.mark.parametrize("kind", [kind.kind for kind in KINDS])
def test_a_kind_is_compiled_in_this_process(kind):
    warmup.run_small_city(kind)


def test_a_change_of_a_kernel_source_asks_for_another_marker(monkeypatch, tmp_path):
    source = tmp_path / "kernel.py"
    source.write_text("a = 1")
    monkeypatch.setattr("nearcast._jit.kernel_sources", lambda: [source])
    before = warmup._marker()
    source.write_text("a = 2")
    assert warmup._marker() != before
