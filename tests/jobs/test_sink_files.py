"""Only committed files are read, once and in order."""

import json

from nearcast.jobs.sink_files import SinkFiles


def write(folder, name, rows):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def commit(folder, batch, names, suffix=""):
    log = folder / "_spark_metadata"
    log.mkdir(exist_ok=True)
    lines = ["v1", *(json.dumps({"path": f"file://{folder}/{name}", "action": "add"}) for name in names)]
    (log / f"{batch}{suffix}").write_text("\n".join(lines))


def test_committed_files_are_read_once_and_others_never(tmp_path):
    out = tmp_path / "out"
    follower = SinkFiles(str(out))
    assert list(follower.rows()) == []
    write(out, "a.json", [{"n": 1}, {"n": 2}])
    write(out, "never.json", [{"n": 99}])
    assert list(follower.rows()) == []
    commit(out, 0, ["a.json"])
    assert [row["n"] for row in follower.rows()] == [1, 2]
    assert list(follower.rows()) == []


def test_batches_are_read_in_the_order_of_their_numbers(tmp_path):
    for number in (2, 10, 9):
        write(tmp_path, f"{number}.json", [{"n": number}])
        commit(tmp_path, number, [f"{number}.json"])
    assert [row["n"] for row in SinkFiles(str(tmp_path)).rows()] == [2, 9, 10]


def test_a_compacted_log_repeats_nothing_and_loses_nothing(tmp_path):
    for number in range(3):
        write(tmp_path, f"{number}.json", [{"n": number}])
    commit(tmp_path, 0, ["0.json"])
    follower = SinkFiles(str(tmp_path))
    assert [row["n"] for row in follower.rows()] == [0]
    commit(tmp_path, 1, ["1.json"])
    commit(tmp_path, 2, ["0.json", "1.json", "2.json"], suffix=".compact")
    assert [row["n"] for row in follower.rows()] == [1, 2]
    assert [row["n"] for row in SinkFiles(str(tmp_path)).rows()] == [0, 1, 2]


def test_paths_may_be_quoted(tmp_path):
    out = tmp_path / "two words"
    write(out, "x.json", [{"n": 1}])
    commit(out, 0, ["x.json"])
    quoted = (out / "_spark_metadata" / "0").read_text().replace(" words", "%20words")
    (out / "_spark_metadata" / "0").write_text(quoted)
    assert [row["n"] for row in SinkFiles(str(out)).rows()] == [1]


def test_a_moved_folder_is_read_from_its_new_path(tmp_path):
    write(tmp_path / "old", "x.json", [{"n": 1}])
    commit(tmp_path / "old", 0, ["x.json"])
    (tmp_path / "old").rename(tmp_path / "new")
    assert [row["n"] for row in SinkFiles(str(tmp_path / "new")).rows()] == [1]
