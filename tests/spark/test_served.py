"""The service beside a real pipeline emits every update once, although it is killed and the pipeline stopped."""

import json
import threading
from collections import Counter
from contextlib import suppress

import httpx
import pytest

import nearcast as nc
from effort import effort
from nearcast.cli.city_job import write_job
from nearcast.jobs.inputs import hash_key_of
from nearcast.jobs.job_file import read_job_file
from nearcast.service.json_bodies import message_from
from nearcast.service.store.cursor import Cursor
from nearcast.service.store.journal import JournalReader
from nearcast.spark.run import start_run
from nearcast.workload.city import City
from service.serve_process import run_serve, wait_ready

END = Cursor(1 << 40, 0)


class Client:
    """Publishes messages, and counts those that were acknowledged."""

    def __init__(self, city):
        self.published = city.messages(1_000_000)
        self.answered = []

    def publish(self, address, n):
        with httpx.Client(base_url=address, timeout=600) as client:
            wait_ready(client)
            for _ in range(n):
                message = next(self.published)
                body = {"id": message.id, "location": message.location, "text": message.text, "place": message.place}
                client.post("/v1/messages", json=body).raise_for_status()
                self.answered.append(message.id)

    def publish_until_killed(self, address):
        with suppress(httpx.TransportError):
            self.publish(address, 1_000_000)


def engine_of(city, plan):
    options = {"vocabulary": city.vocabulary(), "window": nc.TimeWindow(300), "social": city.social}
    return nc.Engine(space=city.space, hash_key=hash_key_of(plan), **options)


def test_updates_are_exactly_once_when_the_service_is_killed_and_the_job_stopped(spark, tmp_path):
    city, data = City(), tmp_path / "data"
    plan = read_job_file(write_job(tmp_path / "job", city, window_s=300))
    client, words = Client(city), ["--spark", str(plan.file)]
    with run_serve(data, *words) as (_, address):
        with httpx.Client(base_url=address, timeout=600) as direct:
            wait_ready(direct)
            direct.post("/v1/subscriptions", json=[s.to_json() for s in city.subscriptions(30)]).raise_for_status()
        run = start_run(spark, plan)
        client.publish(address, 40)
        received(address, "0.0", enough=1)  # the pipeline emits updates, and the service pushes them
    for cycle in range(effort(1, 2)):
        with run_serve(data) as (process, address):
            talking = threading.Thread(target=client.publish_until_killed, args=(address,))
            before = len(client.answered)
            talking.start()
            while len(client.answered) < before + 20:
                pass
            process.kill()
            talking.join()
        if cycle == 0:
            run.stop()
            run = start_run(spark, plan)
    with run_serve(data) as (_, address):
        client.publish(address, 1)
        journal = JournalReader(data / "journal.sqlite")
        published = [message_from(body) for body in journal.newest_messages(10_000)]
        assert {message.id for message in published} >= set(client.answered)
        engine = engine_of(city, plan)
        engine.subscribe(city.subscriptions(30))
        expected = Counter((u.seq, u.subscription, u.message, u.change, u.score) for u in engine.publish(published))
        received(address, "0.0", enough=expected.total())
        run.stop()
        emitted = journal.updates("local", after=Cursor(0, 0), up_to=END, limit=1_000_000)
        journal.close()
        names = ("seq", "subscription", "message", "change", "score")
        assert Counter(tuple(json.loads(one.body)[name] for name in names) for one in emitted) == expected
        with httpx.Client(base_url=address, timeout=600) as direct:
            for requested in city.subscriptions(30):
                held = direct.get(f"/v1/subscriptions/{requested.id}/results").json()["results"]
                expected = engine.results(requested.id)
                assert [one["message"] for one in held] == [one.message for one in expected], requested
                assert [one["score"] for one in held] == pytest.approx([one.score for one in expected])
            stats = direct.get("/metrics").text
            assert (
                "nearcast_engine_subscriptions 30.0" in stats and 'nearcast_engine_visited_total{kind="all"}' in stats
            )


def received(address, cursor, *, enough):
    """Return the updates pushed from a cursor on, once there are enough."""
    with httpx.stream("GET", f"{address}/v1/updates/events", params={"after": cursor}, timeout=600) as response:
        n = idle = 0
        for line in response.iter_lines():
            n += line == "event: update"
            idle = idle + 1 if line.startswith(":") else 0
            assert idle < 12, f"no updates for minutes after {n} of {enough}"
            if n == enough:
                return
    raise AssertionError(f"the stream ended after {n} of {enough}")
