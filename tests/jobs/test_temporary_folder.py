"""Temporary folders are removed: by their process, or after it was killed by the next one."""

import subprocess
import sys
import tempfile

import pytest

from nearcast.jobs.temporary_folder import temporary_folder

HOLD = """
import sys
from nearcast.jobs.temporary_folder import temporary_folder
with temporary_folder() as folder:
    (folder / "large").write_text("content")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def holder(root):
    """A process that has a temporary folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def folders(root):
    return [path for path in root.iterdir() if path.is_dir()]


def test_a_folder_and_its_lock_are_removed_at_the_end(root):
    with pytest.raises(KeyError), temporary_folder() as folder:
        assert folder.is_dir() and not any(folder.iterdir())
        raise KeyError
    assert not list(root.iterdir())


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(root, holder):
    holder.kill()
    holder.wait()
    (abandoned,) = folders(root)
    with temporary_folder() as folder:
        assert folders(root) == [folder] and not abandoned.exists()
    assert not list(root.iterdir())


def test_the_folder_of_a_living_process_is_never_removed(root, holder):
    (living,) = folders(root)
    with temporary_folder() as own, temporary_folder():
        assert {living, own} < set(folders(root))
    assert folders(root) == [living] and (living / "large").read_text() == "content"


def test_folders_of_others_stay(root):
    for name in ("nearcast-1000", "nearcast-abc", "nearcast-temporary-x", "another"):
        (root / name).mkdir()
        (root / f"{name}.lock").touch()
    before = set(root.iterdir())
    with temporary_folder():
        pass
    assert set(root.iterdir()) == before
