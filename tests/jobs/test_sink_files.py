"""Only committed files are read, once and in order."""

import json

import pytest

from nearcast.jobs.folder import Folder
from nearcast.jobs.sink_files import SinkFiles
from sink_rows import committed_rows


def write(folder, name, rows):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def commit(folder, batch, names, suffix=""):
    log = folder / "_spark_metadata"
    log.mkdir(exist_ok=True)
    lines = ["v1", *(json.dumps({"path": f"file://{folder}/{name}", "action": "add"}) for name in names)]
    (log / f"{batch}{suffix}").write_text("\n".join(lines))


class Reader:
    """Ingests files as a client does: it remembers only the last ones."""

    def __init__(self, folder, ingested=()):
        self.files, self.ingested = SinkFiles(str(folder)), list(ingested)

    def read(self):
        files = self.files.new(ingested=self.ingested)
        rows = [row["n"] for name in files for row in self.files.rows_of(name)]
        self.ingested = files or self.ingested
        return rows


def test_committed_files_are_read_once_and_others_never(tmp_path):
    out = tmp_path / "out"
    reader = Reader(out)
    assert reader.read() == []
    write(out, "a.json", [{"n": 1}, {"n": 2}])
    write(out, "never.json", [{"n": 99}])
    assert reader.read() == []
    commit(out, 0, ["a.json"])
    assert reader.read() == [1, 2]
    assert reader.read() == []


def test_batches_are_read_in_the_order_of_their_numbers(tmp_path):
    for number in (10, 9, 11):
        write(tmp_path, f"{number}.json", [{"n": number}])
        commit(tmp_path, number, [f"{number}.json"])
    assert [row["n"] for row in committed_rows(tmp_path)] == [9, 10, 11]


def test_a_compacted_log_repeats_nothing_and_loses_nothing(tmp_path):
    for number in range(4):
        write(tmp_path, f"{number}.json", [{"n": number}])
    commit(tmp_path, 0, ["0.json"])
    reader = Reader(tmp_path)
    assert reader.read() == [0]
    commit(tmp_path, 1, ["1.json"])
    commit(tmp_path, 2, ["0.json", "1.json", "2.json"], suffix=".compact")
    commit(tmp_path, 3, ["3.json"])
    assert reader.read() == [1, 2, 3]
    assert [row["n"] for row in committed_rows(tmp_path)] == [0, 1, 2, 3]


@pytest.mark.parametrize("interval", [2, 3, 100])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_last_files_are_all_that_a_reader_must_remember(tmp_path, interval, is_restarted):
    """Whichever entries Spark has compacted or removed, and with batches that write nothing."""
    reader, rows, names = Reader(tmp_path), [], []
    for batch in range(12):
        new = [] if batch % 4 == 1 else [f"{batch}-{task}.json" for task in range(2)]
        for name in new:
            write(tmp_path, name, [{"n": name}])
        names += new
        is_compact = batch % interval == interval - 1
        commit(tmp_path, batch, names if is_compact else new, suffix=".compact" * is_compact)
        if is_compact and batch > interval:  # Spark removes what an entry holds that is compacted
            for old in range(batch - interval + 1):
                for suffix in ("", ".compact"):
                    (tmp_path / "_spark_metadata" / f"{old}{suffix}").unlink(missing_ok=True)
        if is_restarted:
            reader = Reader(tmp_path, reader.ingested)
        if batch % 5 != 3:  # now and then it reads two batches at once
            rows += reader.read()
        assert len(reader.ingested) <= 4
    assert rows + reader.read() == names


def test_files_that_were_not_ingested_are_returned_again(tmp_path):
    files = SinkFiles(str(tmp_path))
    for batch in range(2):
        write(tmp_path, f"{batch}.json", [{"n": batch}])
        commit(tmp_path, batch, [f"{batch}.json"])
        assert files.new(ingested=[]) == [f"{n}.json" for n in range(batch + 1)]
    assert files.new(ingested=["0.json"]) == ["1.json"]
    assert files.new(ingested=["0.json"]) == ["1.json"]
    assert files.new(ingested=["1.json"]) == files.new(ingested=["1.json"]) == []


def test_a_listing_that_misses_a_batch_skips_nothing(tmp_path, monkeypatch):
    """Entries may be added while a folder is listed, so that a later one is seen and an earlier one is not."""
    for batch in range(3):
        write(tmp_path, f"{batch}.json", [{"n": batch}])
        commit(tmp_path, batch, [f"{batch}.json"])
    reader = Reader(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Folder, "names", lambda *_: ["0", "2"])
        assert reader.read() == [0]
        assert reader.read() == []
    assert reader.read() == [1, 2]


def test_paths_may_be_quoted(tmp_path):
    out = tmp_path / "two words"
    write(out, "x.json", [{"n": 1}])
    commit(out, 0, ["x.json"])
    quoted = (out / "_spark_metadata" / "0").read_text().replace(" words", "%20words")
    (out / "_spark_metadata" / "0").write_text(quoted)
    assert [row["n"] for row in committed_rows(out)] == [1]


def test_a_moved_folder_is_read_from_its_new_path(tmp_path):
    write(tmp_path / "old", "x.json", [{"n": 1}])
    commit(tmp_path / "old", 0, ["x.json"])
    (tmp_path / "old").rename(tmp_path / "new")
    assert [row["n"] for row in committed_rows(tmp_path / "new")] == [1]
