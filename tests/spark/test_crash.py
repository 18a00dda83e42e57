"""Nothing is lost or repeated when processes die: a run is killed at random moments and restarted until done.

NEARCAST_KILLS is the number of kills, 1 by default. A failure prints the seed, which NEARCAST_SEED sets.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import nearcast as nc
from effort import effort
from nearcast.spark import match
from spark import driver, inputs

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the processes to kill in /proc")

VICTIMS = ("worker", "group", "jvm")


class Run:
    """The driver and all its child processes."""

    def __init__(self, folder, number, *master):
        self.fresh = folder / f"work{number}"  # no local files survive from one run to the next
        self.fresh.mkdir()
        with (self.fresh / "errors").open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, driver.__file__, str(folder), str(self.fresh / "local"), *master],
                cwd=self.fresh,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def reach(self, batch):
        """Wait until a batch is done; return whether it was done before the run ended."""
        return any(int(line.removeprefix("batch ")) >= batch for line in self.process.stdout)

    def wait(self, seconds):
        """Wait for the end of the run; return whether it came in time."""
        try:
            self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self, victim):
        """Kill processes of one role; return whether there were any."""
        if victim == "group":
            os.killpg(self.process.pid, signal.SIGKILL)
            return True
        found = [pid for pid, name, parent in descendants(self.process.pid) if is_a(victim, name, parent)]
        for pid in found[:1]:
            os.kill(pid, signal.SIGKILL)
        return bool(found)

    def end(self):
        """Wait for the end; return the exit code and the errors."""
        if not self.process.stdout.closed:
            self.process.communicate()
        return self.process.returncode, (self.fresh / "errors").read_text()[-4000:]


@pytest.fixture
def start(tmp_path):
    """Return a function that starts runs; they are killed after the test."""
    runs = []

    def begin(*master):
        runs.append(Run(tmp_path, len(runs), *master))
        return runs[-1]

    yield begin
    for run in runs:
        if run.process.poll() is None:
            run.kill("group")
        run.end()


def descendants(pid):
    """Return (pid, command line, command line of the parent) of all processes below one."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                names[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue  # it has ended meanwhile
    below, found = {pid}, []
    while new := [p for p, parent in parents.items() if parent in below and p not in below]:
        below |= set(new)
        found += [(p, names[p], names.get(parents[p], "")) for p in new]
    return found


def is_a(victim, name, parent):
    if victim == "jvm":
        return "SparkSubmit" in name and "SparkSubmit" not in parent
    return "nearcast.spark.daemon" in name and "nearcast.spark.daemon" in parent


def committed(folder):
    """Return the updates that the sink committed, by its log of files."""
    logs = sorted((folder / "out" / "_spark_metadata").glob("[0-9]*"), key=lambda path: int(path.name.split(".")[0]))
    compact = max((i for i, path in enumerate(logs) if path.suffix == ".compact"), default=0)
    lines = [line for path in logs[compact:] for line in path.read_text().splitlines() if line.startswith("{")]
    files = [line.split('"path":"')[1].split('"')[0].removeprefix("file://") for line in lines]
    assert len(files) == len(set(files))
    return Counter(inputs.key(row) for row in ds.dataset(files).to_table().to_pylist())


def as_batched(checkpoint, given):
    """Return the batches into which Spark put the files, by its own log.

    A source logs the next file before the batch is logged; a run killed in between later takes two files at once.
    """
    ends = []  # per batch, the number of files of subscriptions and of messages read so far
    for n in range(len(list((checkpoint / "offsets").glob("[0-9]*")))):
        lines = (checkpoint / "offsets" / str(n)).read_text().splitlines()[-2:]
        ends.append([json.loads(line)["logOffset"] + 1 for line in lines])
    made = []
    for (s0, m0), (s1, m1) in pairwise([[0, 0], *ends]):
        messages = [b.messages for b in given[m0:m1]] or [given[0].messages.slice(0, 0)]
        subscriptions = [b.subscriptions for b in given[s0:s1]] or [given[0].subscriptions.slice(0, 0)]
        made.append(inputs.Batch(pa.concat_tables(messages), pa.concat_tables(subscriptions)))
    assert [sum(len(getattr(b, name)) for b in made) for name in ("messages", "subscriptions")] == [
        sum(len(getattr(b, name)) for b in given) for name in ("messages", "subscriptions")
    ]
    return made


def forget_last_commit(folder):
    """Make Spark run its last batch again, unless another has begun, which is then run again anyway."""
    newest = [max(int(path.name) for path in (folder / log).glob("[0-9]*")) for log in ("commits", "offsets")]
    if newest[0] == newest[1]:
        (folder / "commits" / f"{newest[0]}").unlink()
        (folder / "commits" / f".{newest[0]}.crc").unlink(missing_ok=True)
    return newest[0] == newest[1]


@pytest.mark.soak
def test_updates_are_exactly_once_when_processes_die(start, tmp_path, write_stream, random_fields):
    kills = int(os.environ.get("NEARCAST_KILLS", "1"))
    seed = int(os.environ.get("NEARCAST_SEED", random.randrange(1 << 30)))
    rng = random.Random(seed)
    n_batches = 6 + 2 * kills  # snapshots are due and the log of the sink is compacted after every third
    given = inputs.numbered(inputs.batches(seed, random_fields, n=n_batches))
    write_stream(given)
    victims = [VICTIMS[(seed + i) % len(VICTIMS)] for i in range(kills)]
    rng.shuffle(victims)
    moments = sorted(rng.sample(range(1, n_batches - 2), kills))
    run = start()
    for victim, moment in zip(victims, moments, strict=True):
        assert run.reach(moment), f"ended before batch {moment}, seed {seed}: {run.end()}"
        run.wait(rng.random())  # a random moment within a batch
        while not run.kill(victim):  # Spark may be replacing a worker
            assert not run.wait(0.05), f"ended before there was a {victim} to kill, seed {seed}: {run.end()}"
        if victim == "worker":
            continue  # Spark runs its task again
        code, _ = run.end()
        assert code != 0, f"killed {victim}, but the exit code is 0, seed {seed}"
        forget_last_commit(tmp_path / "checkpoint")
        run = start()
    code, errors = run.end()
    assert code == 0, f"seed {seed}: {errors}"
    expected = inputs.embedded(inputs.job(), as_batched(tmp_path / "checkpoint", given))
    assert committed(tmp_path) == expected, f"seed {seed}"
    assert expected.total() > 3 * n_batches


PHASES = {
    "written": "state/*/moves/00000001/*.done",  # what moves to four shards
    "waits": "state/epochs/00000002.json",  # for two shards again
    "written again": "state/*/moves/00000002/*.done",
    "begun again": "state/*/moves/00000002/*.1.done",
}
"""Phases of a rescale, and the files that show that they have begun."""


def test_a_rescale_survives_a_kill_in_each_phase(start, tmp_path, write_stream, random_fields):
    """From two shards to four and back while the job runs; each run is killed when a phase begins."""
    given = inputs.numbered(inputs.batches(3, random_fields, n=effort(7, 16)))
    write_stream(given)
    (tmp_path / "rescales").write_text("4\n2\n")
    for phase in effort(("written",), tuple(PHASES)):
        run = start()
        while not list(tmp_path.glob(PHASES[phase])):
            assert not run.wait(0.01), f"ended before {phase}: {run.end()}"
        run.kill("group")
        run.end()
        forget_last_commit(tmp_path / "checkpoint")
    code, errors = start().end()
    assert code == 0, errors
    assert list(tmp_path.glob(PHASES["begun again"])), "both epochs have begun"
    assert committed(tmp_path) == inputs.embedded(inputs.job(), as_batched(tmp_path / "checkpoint", given))


@pytest.mark.soak
def test_two_executors_emit_the_updates_of_one_engine(start, tmp_path, write_stream, random_fields):
    given = inputs.numbered(inputs.batches(5, random_fields, n=3))
    write_stream(given)
    code, errors = start("local-cluster[2,1,1024]").end()
    assert code == 0, errors
    assert committed(tmp_path) == inputs.embedded(inputs.job(), given)


@pytest.mark.soak  # `test_edges` replays a batch with edges as well
def test_a_batch_with_a_lost_commit_is_replayed(spark, tmp_path, write_stream, random_fields):
    """Some rows of messages retract or replace."""
    of = inputs.job()
    given = inputs.batches(11, random_fields, n=4, withdrawn=0.5)

    def run(n):
        folders = write_stream(given[:n])
        messages, subscriptions = (
            spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)
            for folder, schema in zip(
                folders, (f"{inputs.MESSAGES_DDL}, op string", inputs.SUBSCRIPTIONS_DDL), strict=True
            )
        )
        matched = match(
            messages, subscriptions, space=of.config.space, vocabulary=of.config.vocabulary, social=of.config.social,
            window=nc.CountWindow(7), attributes=of.config.attributes, state=str(tmp_path / "state"),
        )  # fmt: skip
        writer = matched.updates.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        return [progress.batchId for progress in query.recentProgress]

    assert run(2) == [0, 1]
    assert forget_last_commit(tmp_path / "checkpoint")
    assert run(4) == [1, 2, 3]
    expected = inputs.embedded(of, given)
    assert committed(tmp_path) == expected
    assert any(change == "leave" for _, _, _, change, _ in expected)
