import io
import subprocess
import sys

import pyarrow as pa
import pytest

from nearcast.workload import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def tables():
    return [pa.table({"row": [1, 2, 3]}), pa.table({"row": [4]})]


def show_terminal(monkeypatch):
    """Make stderr a terminal. Not a fixture: pytest sets its own stderr after the fixtures."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NEARCAST_QUIET", raising=False)
    return shown


def test_tables_pass_unchanged(tables, monkeypatch):
    show_terminal(monkeypatch)
    assert list(progress(tables, 4, "messages")) == tables


def test_a_terminal_shows_the_name_and_the_count(tables, monkeypatch):
    terminal = show_terminal(monkeypatch)
    list(progress(tables, 4, "messages"))
    assert "messages" in terminal.getvalue()
    assert "4/4" in terminal.getvalue()


def test_nothing_is_shown_on_request(tables, monkeypatch):
    terminal = show_terminal(monkeypatch)
    monkeypatch.setenv("NEARCAST_QUIET", "1")
    assert list(progress(tables, 4, "messages")) == tables
    assert terminal.getvalue() == ""


def test_nothing_is_shown_if_stderr_is_no_terminal(tables, monkeypatch):
    monkeypatch.setattr(sys, "stderr", shown := io.StringIO())
    assert list(progress(tables, 4, "messages")) == tables
    assert shown.getvalue() == ""


def test_the_line_is_erased_if_a_stream_is_abandoned(tables, monkeypatch):
    terminal = show_terminal(monkeypatch)
    stream = progress(tables, 4, "messages")
    next(stream)
    stream.close()
    assert "0/4" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")  # erase the line


def test_rich_is_not_imported_if_nothing_is_shown():
    code = (
        "import sys; from nearcast.workload import make, progress; "
        "list(progress(make('places').messages(1), 1, 'x')); print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "False\n" and done.stderr == ""
