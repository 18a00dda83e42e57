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


def test_every_kind_is_compiled_once_in_a_process_of_its_own(marker, monkeypatch):
    started, lines = [], []

    def run(command, **options):
        started.append(command[-1])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    warmup.warm_kinds(lines.append)
    assert sorted(started) == sorted(kind.kind for kind in KINDS)
    assert lines[0].endswith("0 of 5 kinds done") and lines[-1].startswith("compiling kernels: 5 of 5 kinds done")
    assert marker.exists()
    warmup.warm_kinds(lines.append)
    assert len(started) == len(lines) - 1 == 5, "nothing is compiled again, and nothing said"


def test_a_failed_process_leaves_no_marker(marker, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda command, **options: SimpleNamespace(returncode=1))
    warmup.warm_kinds(lambda line: None)
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
