"""A service that stays open for many examples of one property, and what every answer must satisfy."""

import asyncio
import contextlib
import json
from urllib.parse import unquote

from nearcast.service.api.problems import MEDIA_TYPE
from service.running_service import SUBSCRIPTIONS, in_process, message


class ServiceClient:
    """Sends requests to a service in this process, one after the other."""

    def __init__(self, folder, **options):
        self._runner = asyncio.Runner()
        self._service = in_process(folder, **options)
        self._client = self._runner.run(self._service.__aenter__())
        self._client.app.state.service.webhooks._start_sender = lambda key: None  # nothing leaves this machine

    def close(self):
        self._runner.run(self._service.__aexit__(None, None, None))
        self._runner.close()

    def send(self, method, path, **options):
        """Return the answer to a request that httpx can express."""
        return self._runner.run(self._client.request(method, path, **options))

    def send_raw(self, method, target, headers, body=b""):
        """Return status, headers and body of the answer to a request of any bytes, as a server passes it on."""
        path, _, query = target.partition(b"?")
        return self._runner.run(self._raw(method, path, query, headers, body))

    async def _raw(self, method, path, query, headers, body):
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(path.decode("latin-1")), "raw_path": path,
            "query_string": query, "root_path": "", "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        parts, answer = [{"type": "http.request", "body": body, "more_body": False}], []
        ended = asyncio.Event()

        async def receive():
            if parts:
                return parts.pop(0)
            await ended.wait()  # a client that stays until it has its answer
            return {"type": "http.disconnect"}

        async def send(part):
            answer.append(part)
            if part["type"] == "http.response.body" and (not part.get("more_body") or part.get("body")):
                ended.set()  # of an endless stream, the first part is enough

        call = asyncio.ensure_future(self._client.app(scope, receive, send))
        waiting = asyncio.ensure_future(ended.wait())
        await asyncio.wait({call, waiting}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)
        for task in (call, waiting):
            if not task.done():
                task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        start = answer[0]
        return start["status"], dict(start["headers"]), b"".join(part.get("body", b"") for part in answer[1:])

    def state(self):
        """Return all that a request could change, as the service itself reports it."""
        subscriptions = self.send("GET", "/v1/subscriptions", params={"limit": 1000}).json()["subscriptions"]
        webhooks = self.send("GET", "/v1/webhooks", params={"limit": 1000}).json()["webhooks"]
        loop = self._client.app.state.service.command_loop
        return subscriptions, webhooks, loop.reader.last_seq(), self._commands(loop)

    def _commands(self, loop):
        ((last,),) = loop.reader._rows("SELECT coalesce(max(number), 0) FROM commands", ())
        return last

    def fill(self):
        """Make something that requests can name: a subscription of each kind, two messages and a webhook."""
        for kind, body in SUBSCRIPTIONS.items():
            assert self.send("PUT", f"/v1/subscriptions/{kind}", json=body).status_code in (200, 201)
        assert self.send("POST", "/v1/messages", json=[message(1), message(2)]).status_code == 200
        assert self.send("PUT", "/v1/webhooks/w1", json={"url": "http://127.0.0.1:9/"}).status_code in (200, 201)


def check_answer(status, headers, body):
    """Check that a status is none of a server's error, and that a refusal explains itself in the usual form."""
    assert status < 500, body
    if status >= 400:
        problem = json.loads(body)
        assert headers[b"content-type"] == MEDIA_TYPE.encode()
        assert problem["status"] == status and problem["detail"] and problem["title"]
        assert len(body) < 20_000, "a refusal does not repeat long input"
        for error in problem.get("errors", ()):
            assert {"field", "rule", "value"} <= set(error)
