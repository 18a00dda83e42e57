"""`nearcast serve` loses no answered request when it is killed, and reports invalid options in one line."""

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from nearcast.cli import main, serve
from nearcast.engine.clock import MAX_AHEAD_S
from nearcast.service.server import bind
from nearcast.service.store.limits import ServiceLimits
from service.running_service import SUBSCRIPTIONS, message
from service.serve_process import run_serve, subscription_ids, updates_after, wait_ready

N_KILLS = int(os.environ.get("NEARCAST_KILLS", "1"))


class ClientGroup:
    """Clients that subscribe and publish concurrently and record the answers."""

    def __init__(self):
        self.messages, self.subscriptions, self.n_updates = [], set(), 0
        self._lock = threading.Lock()

    def run_until(self, address, name, n_messages, then):
        """Run three clients; when `n_messages` are answered in all, call `then`."""
        threads = [threading.Thread(target=self._run, args=(address, f"{name}.{i}", 1 << 60)) for i in range(2)]
        for thread in threads:
            thread.start()
        self._run(address, f"{name}.2", n_messages)
        then()
        for thread in threads:
            thread.join()

    def _run(self, address, name, n_messages):
        with httpx.Client(base_url=address, timeout=600) as client:
            for n in range(1_000_000):
                id_ = f"{name}.{n}"
                try:
                    if n % 7 == 0:
                        client.put(f"/v1/subscriptions/{id_}", json=SUBSCRIPTIONS["boolean"]).raise_for_status()
                        self._record(subscription=id_)
                        continue
                    answer = client.post("/v1/messages", json={**message(n), "id": id_}).raise_for_status().json()
                except httpx.TransportError:
                    return
                if self._record(message=id_, n_updates=answer["updates"]) >= n_messages:
                    return

    def _record(self, *, subscription=None, message=None, n_updates=0):
        with self._lock:
            self.subscriptions |= {subscription} - {None}
            self.messages += [message] if message else []
            self.n_updates += n_updates
            return len(self.messages)


def test_no_answered_request_is_lost_when_the_process_is_killed(tmp_path):
    """Kill it repeatedly while clients run, and compare everything with the recorded answers each time."""
    rng, clients, updates = random.Random(7), ClientGroup(), []
    arguments = ["--bounds", "0,0,1,1", "--window", "100k", "--snapshot-every", "37"]
    for cycle in range(N_KILLS + 1):
        with (
            run_serve(tmp_path, *arguments) as (process, address),
            httpx.Client(base_url=address, timeout=600) as client,
        ):
            arguments = []  # the folder has recorded its configuration
            wait_ready(client)
            if cycle:
                replayed = updates_after(address, "0.0", clients.n_updates)
                assert replayed[: len(updates)] == updates, "the same updates under the same cursors"
                cursor = updates[-1][0] if updates else "0.0"
                assert updates_after(address, cursor, len(replayed) - len(updates)) == replayed[len(updates) :]
                updates = replayed
                assert clients.subscriptions <= subscription_ids(client), "every answered subscription"
            if cycle == N_KILLS:
                first = min(clients.subscriptions)
                for id_ in clients.messages:
                    explanation = client.get(f"/v1/subscriptions/{first}/explain", params={"message": id_})
                    assert explanation.status_code == 200, explanation.text
            if cycle < N_KILLS:
                n_messages = len(clients.messages) + rng.randint(15, 40)
                clients.run_until(address, f"c{cycle}", n_messages, process.kill)
    assert len(clients.messages) >= 15 * N_KILLS
    cursors = [tuple(map(int, id_.split("."))) for id_, _ in updates]
    assert cursors == sorted(set(cursors)), "each cursor once, in order"


def test_ctrl_c_saves_the_engine_and_exits(tmp_path):
    with run_serve(tmp_path, "--city", "--window", "60s") as (process, address):
        with httpx.Client(base_url=address) as client:
            wait_ready(client)
            body = {**SUBSCRIPTIONS["boolean"], "region": [8.9, 54.0, 9.2, 54.18]}
            assert client.put("/v1/subscriptions/s1", json=body).status_code == 201
            refused = f"{address.replace('http', 'ws', 1)}/v1/updates?after=nonsense"
            with pytest.raises(InvalidStatus, match="422"), connect(refused):
                pass
            with client.stream("GET", "/v1/updates/events") as stream:
                lines = stream.iter_lines()
                assert next(lines) == "event: ready"
                process.send_signal(signal.SIGINT)
                assert "event: closed" in list(lines)
        assert process.wait() == 130
        err = process.stderr.read()
    assert (
        "no tokens are required: everyone who reaches this address has full access" in err and "Traceback" not in err
    )
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == ["000000000001"]


def test_help_does_not_import_the_service():
    code = (
        "import sys\n"
        "from nearcast.cli import main\n"
        "try: main(['serve', '--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('fastapi', 'uvicorn', 'numba', 'sqlite3') if m in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "[]" and "--snapshot-every" in ran.stdout


def test_the_socket_has_an_explicit_protocol():
    """asyncio turns Nagle's algorithm off only for sockets with the protocol TCP."""
    with bind("localhost", 0) as bound:
        assert bound.proto == socket.IPPROTO_TCP


def test_a_port_in_use_is_reported_before_anything_is_created(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--data", str(tmp_path / "data"), "--city", "--port", str(port)]) == 2
    assert "nearcast: port must be available on 127.0.0.1: Address already in use" in capsys.readouterr().err  # fmt: skip
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "data must be given; got None"),
        (["--data", "{}"], "is new: it needs a configuration"),
        (["--data", "{}", "--bounds", "1,2"], "bounds must be XMIN,YMIN,XMAX,YMAX; got '1,2'"),
        (["--data", "{}", "--bounds", "0,0,1,1", "--city"], "bounds must not be given together with --city; got '0,0,1,1'"),
        (["--data", "{}", "--city", "--spark", "{}/job.toml"], "city must not be given together with --spark; got 0"),
        (["--data", "{}", "--spark", "{}/job.toml"], "job.toml must be a job file: No such file or directory"),
        (["--data", "{}", "--city", "--window", "long"], "window must be a number of messages, or a duration such as 90s, 5min, 1h or 7d; got 'long'"),
        (["--data", "{}/new", "--bounds", "0,0,1,1", "--metric", "magic"], "metric must be one of ['euclidean', 'haversine']; got 'magic'"),
        (["--data", "{}/new", "--bounds", "1,0,0,1"], "xmin must not exceed xmax; got 1.0 > 0.0"),
        (["--data", "{}/new", "--city", "--partitioner", "magic"], "partitioner must be one of"),
        (["--data", "{}", "--city", "--port", "70000"], "port must be below 65536; got 70000"),
        (["--data", "{}", "--city", "--tokens", "{}/none"], "tokens must be a TOML file of tokens"),
    ],
)  # fmt: skip
def test_invalid_options_are_reported_in_one_line(tmp_path, capsys, arguments, error):
    assert main(["serve", "--port", "0", *(argument.format(tmp_path) for argument in arguments)]) == 2
    err = capsys.readouterr().err
    assert error in err and err.count("\n") == 1
    assert not (tmp_path / "new").exists(), "an invalid configuration is not recorded"


def test_every_limit_is_documented_with_its_default_and_the_library_has_the_same():
    parser = argparse.ArgumentParser()
    serve.add_options(parser)
    limits = next(group for group in parser._action_groups if group.title == "limits")
    table = (Path(__file__).parents[2] / "docs" / "operations.md").read_text().partition("## Limits")[2]
    rows = [row for row in table.partition("## Metrics")[0].splitlines() if row.startswith("| `--")]
    for action in limits._group_actions:
        (row,) = (row for row in rows if f"`{action.option_strings[0]}`" in row.split("|")[1])
        default = MAX_AHEAD_S if action.dest == "max_ahead" else action.default
        assert f"{default:,}".removesuffix(".0") in row, row
    options, library = parser.parse_args([]), ServiceLimits()
    assert (options.keep_bytes, options.keep_updates) == (library.max_bytes, library.max_updates)
    assert (options.min_free, options.snapshot_every) == (library.min_free_bytes, library.snapshot_every)
    assert (options.keep_hours * 3600, options.max_waiting) == (library.max_age_s, library.max_waiting)
