"""`nearcast serve` as a process of its own, and requests to it."""

import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx


@contextmanager
def run_serve(folder, *arguments):
    """Run the command; lend the process and the address that it printed."""
    command = [sys.executable, "-m", "nearcast.cli", "serve", "--data", str(folder), "--port", "0", *arguments]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background test runs ignore Ctrl-C
    ) as process:
        try:
            line = process.stdout.readline()
            assert "serving" in line, process.stderr.read()
            yield process, line.partition(" on ")[2].split(",")[0]
        finally:
            process.kill()


def wait_ready(client):
    while client.get("/health/ready").status_code == 503:
        time.sleep(0.05)  # constant requests would slow down what it waits for


def updates_after(address, cursor, n):
    """Return the next n updates after a cursor."""
    updates = []
    with httpx.stream("GET", f"{address}/v1/updates/events", params={"after": cursor}, timeout=600) as response:
        assert response.status_code == 200, response.read()
        event = {}
        for line in response.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
                continue
            if event.get("event") == "update":
                updates.append((event["id"], event["data"]))
                if len(updates) == n:
                    return updates
            event = {}
    raise AssertionError(f"the stream ended after {len(updates)} of {n}")


def subscription_ids(client):
    """Return the ids of all subscriptions."""
    ids, cursor = set(), ""
    while cursor is not None:
        page = client.get("/v1/subscriptions", params={"cursor": cursor, "limit": 1000}).json()
        ids |= {one["id"] for one in page["subscriptions"]}
        cursor = page["next"]
    return ids
