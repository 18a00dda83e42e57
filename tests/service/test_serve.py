"""Does `nearcast serve` keep what it answered, also when it is killed?"""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import httpx
import pytest

from nearcast.cli import main
from nearcast.service.server import bind
from service.served import KINDS, message

CYCLES = int(os.environ.get("NEARCAST_KILLS", "3"))


@contextmanager
def started(folder, *words):
    """Run the command; lend the process and the address it printed."""
    command = [sys.executable, "-m", "nearcast.cli", "serve", "--data", str(folder), "--port", "0", *words]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whoever runs tests aside ignores Ctrl-C
    ) as process:
        try:
            line = process.stdout.readline()
            assert "serving" in line, process.stderr.read()
            yield process, line.partition(" on ")[2].split(",")[0]
        finally:
            process.kill()


def until_ready(client):
    while client.get("/health/ready").status_code == 503:
        pass


def updates_after(address, cursor, n):
    """Return the next n updates behind a cursor."""
    got = []
    with httpx.stream("GET", f"{address}/v1/updates/events", params={"after": cursor}, timeout=60) as response:
        assert response.status_code == 200, response.read()
        event = {}
        for line in response.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
                continue
            if event.get("event") == "update":
                got.append((event["id"], event["data"]))
                if len(got) == n:
                    return got
            event = {}
    raise AssertionError(f"the stream ended after {len(got)} of {n}")


def listed(client):
    """Return the ids of all subscriptions."""
    ids, cursor = set(), ""
    while cursor is not None:
        page = client.get("/v1/subscriptions", params={"cursor": cursor, "limit": 1000}).json()
        ids |= {one["id"] for one in page["subscriptions"]}
        cursor = page["next"]
    return ids


class DensityGrid:
    """Clients that subscribe and publish at once, and note what was answered."""

    def __init__(self):
        self.messages, self.subscriptions, self.n_updates = [], set(), 0
        self._lock = threading.Lock()

    def talk_until(self, address, name, enough, then):
        """Let three clients talk; when so many messages were answered, do something."""
        talkers = [threading.Thread(target=self._talk, args=(address, f"{name}.{i}", 1 << 60)) for i in range(2)]
        for thread in talkers:
            thread.start()
        self._talk(address, f"{name}.2", enough)
        then()
        for thread in talkers:
            thread.join()

    def _talk(self, address, name, enough):
        with httpx.Client(base_url=address, timeout=60) as client:
            for n in range(1_000_000):
                id_ = f"{name}.{n}"
                try:
                    if n % 7 == 0:
                        client.put(f"/v1/subscriptions/{id_}", json=KINDS["boolean"]).raise_for_status()
                        self._note(subscription=id_)
                        continue
                    answer = client.post("/v1/messages", json={**message(n), "id": id_}).raise_for_status().json()
                except httpx.TransportError:
                    return
                if self._note(message=id_, n_updates=answer["updates"]) >= enough:
                    return

    def _note(self, *, subscription=None, message=None, n_updates=0):
        with self._lock:
            self.subscriptions |= {subscription} - {None}
            self.messages += [message] if message else []
            self.n_updates += n_updates
            return len(self.messages)


def test_nothing_that_was_answered_is_lost_when_it_is_killed(tmp_path):
    """Killed again and again while clients talk; each time everything is compared with the answers."""
    rng, crowd, heard = random.Random(7), DensityGrid(), []
    words = ["--bounds", "0,0,1,1", "--window", "100k", "--snapshot-every", "37"]
    for cycle in range(CYCLES + 1):
        with started(tmp_path, *words) as (process, address), httpx.Client(base_url=address, timeout=60) as client:
            words = []  # the folder knows its world
            until_ready(client)
            if cycle:
                again = updates_after(address, "0.0", crowd.n_updates)
                assert again[: len(heard)] == heard, "the same again, under the same cursors"
                cursor = heard[-1][0] if heard else "0.0"
                assert updates_after(address, cursor, len(again) - len(heard)) == again[len(heard) :]
                heard = again
                assert crowd.subscriptions <= listed(client), "every subscription that was answered"
            if cycle == CYCLES:
                first = min(crowd.subscriptions)
                for id_ in crowd.messages:
                    why = client.get(f"/v1/subscriptions/{first}/explain", params={"message": id_})
                    assert why.status_code == 200, why.text
            if cycle < CYCLES:
                enough = len(crowd.messages) + rng.randint(15, 40)
                crowd.talk_until(address, f"c{cycle}", enough, process.kill)
    assert len(crowd.messages) >= 15 * CYCLES
    places = [tuple(map(int, id_.split("."))) for id_, _ in heard]
    assert places == sorted(set(places)), "each cursor once, in order"


def test_ctrl_c_saves_the_engine_and_ends(tmp_path):
    with started(tmp_path, "--city", "--window", "60s") as (process, address):
        with httpx.Client(base_url=address) as client:
            until_ready(client)
            body = {**KINDS["boolean"], "region": [8.9, 54.0, 9.2, 54.18]}
            assert client.put("/v1/subscriptions/s1", json=body).status_code == 201
            with client.stream("GET", "/v1/updates/events") as listening:
                lines = listening.iter_lines()
                assert next(lines) == "event: ready"
                process.send_signal(signal.SIGINT)
                assert "event: closed" in list(lines)
        assert process.wait() == 130
        err = process.stderr.read()
    assert "no tokens: whoever reaches this address may do everything" in err and "Traceback" not in err
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == ["000000000001"]


def test_help_does_not_load_the_service():
    code = (
        "import sys\n"
        "from nearcast.cli import main\n"
        "try: main(['serve', '--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('fastapi', 'uvicorn', 'numba', 'sqlite3') if m in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "[]" and "--snapshot-every" in ran.stdout


def test_answers_do_not_wait_for_more():
    """asyncio switches Nagle's algorithm off only for sockets that say they are TCP."""
    with bind("localhost", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_a_port_that_is_taken_is_said_before_anything_is_made(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--data", str(tmp_path / "data"), "--city", "--port", str(port)]) == 2
    assert "nearcast: port must be one that can be served on 127.0.0.1: Address already in use" in capsys.readouterr().err  # fmt: skip
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "data must be given; got None"),
        (["--data", "{}"], "is new: say which world it is for"),
        (["--data", "{}", "--bounds", "1,2"], "bounds must be XMIN,YMIN,XMAX,YMAX; got '1,2'"),
        (["--data", "{}", "--bounds", "0,0,1,1", "--city"], "bounds must be left out where --city is given; got '0,0,1,1'"),
        (["--data", "{}", "--city", "--spark", "{}/job.toml"], "city must be left out where --spark is given; got 0"),
        (["--data", "{}", "--spark", "{}/job.toml"], "job.toml must be a job file: No such file or directory"),
        (["--data", "{}", "--city", "--window", "long"], "window must be a number of messages, or of seconds as in 60s; got 'long'"),
        (["--data", "{}/new", "--bounds", "0,0,1,1", "--metric", "magic"], "metric must be one of ['euclidean', 'haversine']; got 'magic'"),
        (["--data", "{}/new", "--bounds", "1,0,0,1"], "xmin must not exceed xmax; got 1.0 > 0.0"),
        (["--data", "{}/new", "--city", "--partitioner", "magic"], "partitioner must be one of"),
        (["--data", "{}", "--city", "--port", "70000"], "port must be below 65536; got 70000"),
        (["--data", "{}", "--city", "--tokens", "{}/none"], "tokens must be a TOML file of tokens"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(tmp_path, capsys, words, said):
    assert main(["serve", "--port", "0", *(word.format(tmp_path) for word in words)]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1
    assert not (tmp_path / "new").exists(), "what is wrong is not noted"
