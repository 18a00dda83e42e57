"""Someone who takes webhooks: a small HTTP server that answers as it is told."""

import asyncio
from contextlib import asynccontextmanager
from typing import NamedTuple

OK = (200, {})


class Delivery(NamedTuple):
    headers: dict
    body: bytes

    @property
    def id(self):
        return self.headers["webhook-id"]


class Receiver:
    """Answers as `answers` say, one after the other, then with 200; None is no answer at all."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.got = asyncio.Queue()

    async def take(self, n=1):
        return [await self.got.get() for _ in range(n)]

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
                self.got.put_nowait(Delivery(headers, body))
                if answer is None:
                    await reader.read()  # until the other side has enough
                    return
                status, more = answer
                lines = [f"HTTP/1.1 {status} So", *(f"{k}: {v}" for k, v in {"Content-Length": 2, **more}.items())]
                writer.write("\r\n".join([*lines, "", "ok"]).encode())
                while "Content-Length" in more:  # as long as anyone reads
                    writer.write(b"x" * 1000)
                    await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiving(*answers, port=0, **how):
    """A receiver, and where it is."""
    receiver = Receiver(*answers)
    server = await asyncio.start_server(receiver, "127.0.0.1", port, **how)
    receiver.port = server.sockets[0].getsockname()[1]
    receiver.url = f"http://127.0.0.1:{receiver.port}/hook"
    try:
        yield receiver
    finally:
        server.close()
