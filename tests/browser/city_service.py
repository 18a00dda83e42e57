"""A service on a port for a browser: it runs in a thread and can be stopped and restarted."""

import asyncio
import threading

import httpx

from nearcast.service.config import ServiceConfig
from nearcast.service.server import Server, bind
from nearcast.workload.city import City
from service.running_service import make_service
from service.serve_process import wait_ready

CITY = City(seed=1)
CONFIG = ServiceConfig(city=CITY.seed, window_count=2_000)
SHARDED = ServiceConfig(city=CITY.seed, window_count=2_000, workers=4, partitioner="space_kd")


class CityService:
    """A service that can be stopped and restarted; `client` sends requests to it."""

    def __init__(self, folder, config=CONFIG, **options):
        self._make = lambda: make_service(folder, config, max_body_bytes=8_000_000, max_queued=10_000, **options)
        self._port, self._n_published = 0, 0
        self.start()

    def start(self):
        is_started, bound = threading.Event(), bind("127.0.0.1", self._port)
        self._port = bound.getsockname()[1]
        self.address = f"http://127.0.0.1:{self._port}"

        def run():  # one thread locks the data folder and releases it
            self._server = Server(self._make(), bound, on_start=lambda address: is_started.set())
            asyncio.run(self._server.serve())

        self._thread = threading.Thread(target=run)
        self._thread.start()
        while not is_started.wait(1):
            assert self._thread.is_alive(), "the service did not start"
        self.client = httpx.Client(base_url=self.address, timeout=600)
        wait_ready(self.client)

    def stop(self):
        self.client.close()
        self._server.should_exit = True
        self._thread.join()

    def subscribe(self, *bodies, headers=None):
        assert self.client.post("/v1/subscriptions", json=list(bodies), headers=headers).status_code == 200

    def publish(self, text, location, *, place=None, id_=None, headers=None):
        """Publish one message and return its id."""
        self._n_published += 1
        id_ = id_ or f"test-{self._n_published}"
        body = {"id": id_, "location": list(location), "text": text, "place": place}
        answer = self.client.post("/v1/messages", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return id_

    def publish_city(self, n, *, headers=None):
        """Publish the first n messages of the city, with new ids."""
        bodies = [{**body_of(message), "id": f"{message.id}-{self._n_published}"} for message in CITY.messages(n)]
        self._n_published += 1
        assert self.client.post("/v1/messages", json=bodies, headers=headers).status_code == 200


def body_of(message):
    return {"id": message.id, "location": list(message.location), "text": message.text, "place": message.place}


def subscriptions(n):
    """Return subscriptions of the city as JSON."""
    return [subscription.to_json() for subscription in CITY.subscriptions(n)]
