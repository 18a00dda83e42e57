"""A service on a real port for a browser: started in a thread, stopped, and started again where it was."""

import asyncio
import threading
from dataclasses import fields

import httpx

from nearcast.service.config import ServiceConfig
from nearcast.service.server import Server, bind
from nearcast.workload.city import City
from service.served import make_service

CITY = City(seed=1)
WORLD = ServiceConfig(city=CITY.seed, window_count=2_000)
SHARED = ServiceConfig(city=CITY.seed, window_count=2_000, workers=4, partitioner="space_kd")
_SAID = ("region", "location", "keywords", "k", "alpha", "delta", "tau", "user")


class ServedCity:
    """A service that can be stopped and started; talk to it with `client`."""

    def __init__(self, folder, world=WORLD, **options):
        self._make = lambda: make_service(folder, world, most_bytes=8_000_000, most_queued=10_000, **options)
        self._port, self._told = 0, 0
        self.start()

    def start(self):
        taken, bound = threading.Event(), bind("127.0.0.1", self._port)
        self._port = bound.getsockname()[1]
        self.address = f"http://127.0.0.1:{self._port}"

        def run():  # all of it in one thread: who takes a folder has to let go of it
            self._server = Server(self._make(), bound, on_start=lambda address: taken.set())
            asyncio.run(self._server.serve())

        self._thread = threading.Thread(target=run)
        self._thread.start()
        while not taken.wait(1):
            assert self._thread.is_alive(), "the service did not start"
        self.client = httpx.Client(base_url=self.address, timeout=60)
        while self.client.get("/health/ready").status_code == 503:
            pass

    def stop(self):
        self.client.close()
        self._server.should_exit = True
        self._thread.join()

    def subscribe(self, *bodies, headers=None):
        assert self.client.post("/v1/subscriptions", json=list(bodies), headers=headers).status_code == 200

    def say(self, text, where, *, place=None, id_=None, headers=None):
        """Publish one message; return its id."""
        self._told += 1
        body = {"id": id_ or f"said-{self._told}", "location": list(where), "text": text, "place": place}
        answer = self.client.post("/v1/messages", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return body["id"]

    def talk(self, n, *, headers=None):
        """Publish what the city says next, the same whenever a test begins to listen."""
        said = [{**body_of(message), "id": f"{message.id}-{self._told}"} for message in CITY.messages(n)]
        self._told += 1
        assert self.client.post("/v1/messages", json=said, headers=headers).status_code == 200


def body_of(message):
    return {"id": message.id, "location": list(message.location), "text": message.text, "place": message.place}


def subscriptions(n):
    """Return what people of the city ask for, as JSON."""
    return [_subscription(one) for one in CITY.subscriptions(n)]


def _subscription(one):
    known = {field.name for field in fields(one)} & set(_SAID)
    said = {name: getattr(one, name) for name in known}
    if "region" in said:
        said["region"] = list(said["region"].as_tuple())
    if "location" in said:
        said["location"] = list(said["location"])
    return {"id": one.id, "kind": one.kind, **said}
