"""A receiver of webhooks for tests: a small HTTP server with scripted answers."""

import asyncio
from contextlib import asynccontextmanager
from typing import NamedTuple

OK = (200, {})


class ReceivedDelivery(NamedTuple):
    headers: dict
    body: bytes

    @property
    def id(self):
        return self.headers["webhook-id"]


class WebhookReceiver:
    """Gives the scripted answers in order, then 200; None stands for no answer at all."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.deliveries = asyncio.Queue()

    async def take(self, n=1):
        return [await self.deliveries.get() for _ in range(n)]

    async def __call__(self, reader, writer):
        try:
            while line := await reader.readline():
                assert line.startswith(b"POST ")
                headers = {}
                while (line := (await reader.readline()).decode().strip()) != "":
                    name, _, value = line.partition(": ")
                    headers[name.lower()] = value
                body = await reader.readexactly(int(headers["content-length"]))
                answer = self.answers.pop(0) if self.answers else OK
                self.deliveries.put_nowait(ReceivedDelivery(headers, body))
                if answer is None:
                    await reader.read()  # until the client disconnects
                    return
                status, extra = answer
                all_headers = {"Content-Length": 2, **extra}
                lines = [f"HTTP/1.1 {status} Status", *(f"{k}: {v}" for k, v in all_headers.items())]
                writer.write("\r\n".join([*lines, "", "ok"]).encode())
                while "Content-Length" in extra:  # an endless body, until the client disconnects
                    writer.write(b"x" * 1000)
                    await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def run_receiver(*answers, port=0, **options):
    """Run a receiver; it has the attributes `port` and `url`."""
    receiver = WebhookReceiver(*answers)
    server = await asyncio.start_server(receiver, "127.0.0.1", port, **options)
    receiver.port = server.sockets[0].getsockname()[1]
    receiver.url = f"http://127.0.0.1:{receiver.port}/hook"
    try:
        yield receiver
    finally:
        server.close()
