"""Subscribers see only their own data, and scopes limit what a token allows."""

import tomllib

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from nearcast.cli import main
from nearcast.errors import InvalidInput
from nearcast.service.api.access import Caller, TokenFile, hash_token, new_token
from service.running_service import SUBSCRIPTIONS, in_process, message, on_network

CALLERS = {
    hash_token(f"{name}-token"): Caller(name, frozenset(scopes))
    for name, scopes in {
        "ann": ["subscribe"], "bob": ["subscribe", "publish"], "eve": ["publish"], "root": ["admin"],
    }.items()
}  # fmt: skip


def token_of(name):
    return {"Authorization": f"Bearer {name}-token"}


async def test_a_subscriber_sees_only_its_own_subscriptions(tmp_path):
    async with in_process(tmp_path, callers=CALLERS) as client:
        for name in ("ann", "bob"):
            body = {**SUBSCRIPTIONS["topk"], "keywords": f"{name} coffee"}
            assert (await client.put("/v1/subscriptions/s1", json=body, headers=token_of(name))).status_code == 201
        await client.put("/v1/subscriptions/own", json=SUBSCRIPTIONS["boolean"], headers=token_of("bob"))
        await client.post("/v1/messages", json=message(1), headers=token_of("eve"))
        assert (await client.get("/v1/subscriptions/s1", headers=token_of("ann"))).json()["keywords"] == "ann coffee"
        listed = (await client.get("/v1/subscriptions", headers=token_of("ann"))).json()["subscriptions"]
        assert [one["id"] for one in listed] == ["s1"]
        for path in ("own", "own/results", "own/explain?message=m1"):
            assert (await client.get(f"/v1/subscriptions/{path}", headers=token_of("ann"))).status_code == 404
        assert (await client.delete("/v1/subscriptions/own", headers=token_of("ann"))).status_code == 404
        assert (await client.delete("/v1/subscriptions/own", headers=token_of("bob"))).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/subscriptions", {"ann", "bob"}),
        ("POST", "/v1/messages", {"bob", "eve"}),
        ("POST", "/v1/messages/stream", {"bob", "eve"}),
        ("GET", "/metrics", {"root"}),
        ("GET", "/health/ready", {"ann", "bob", "eve", "root"}),
    ],
)
async def test_scopes_limit_requests(tmp_path, method, path, allowed):
    async with in_process(tmp_path, callers=CALLERS) as client:
        for name in ("ann", "bob", "eve", "root"):
            body = message(1) if method == "POST" else None
            response = await client.request(method, path, headers=token_of(name), json=body)
            assert response.status_code == (200 if name in allowed else 403), (name, response.text)
        if path != "/health/ready":
            for headers in ({}, token_of("mallory"), {"Authorization": "Basic x"}):
                response = await client.request(method, path, headers=headers, json=message(1))
                assert response.status_code == 401
                assert response.headers["www-authenticate"] == "Bearer"


async def test_a_client_receives_only_updates_of_its_subscriber(tmp_path):
    async with on_network(tmp_path, callers=CALLERS) as client:
        for name in ("ann", "bob"):
            await client.put(f"/v1/subscriptions/{name}1", json=SUBSCRIPTIONS["boolean"], headers=token_of(name))
        url = str(client.base_url.copy_with(scheme="ws", path="/v1/updates"))
        async with (
            connect(url, additional_headers=token_of("ann")) as ann,
            connect(f"{url}?token=bob-token&subscription=ann1&subscription=bob1") as bob,
        ):
            await ann.recv()
            await bob.recv()
            await client.post("/v1/messages", json=message(1), headers=token_of("eve"))
            assert '"ann1"' in await ann.recv()
            assert '"bob1"' in await bob.recv()
        for query, status in (("", 401), ("?token=eve-token", 403)):
            with pytest.raises(InvalidStatus) as rejected:
                await connect(url + query).__aenter__()
            assert rejected.value.response.status_code == status
            assert (await client.get(f"/v1/updates/events{query}")).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "elsewhere.example:8080"}, 403),
        ({"host": "localhost:8080", "origin": "http://elsewhere.example"}, 403),
        ({"host": "localhost:8080", "origin": "null"}, 403),
        ({"host": "localhost:8080", "origin": "http://localhost:8080"}, 200),
        ({"host": "[::1]:8080"}, 200),
        ({"host": "["}, 403),
        ({"host": "localhost:8080", "origin": "http://["}, 403),
        ({"host": "127.0.0.1", "x-forwarded-for": "203.0.113.7"}, 403),
        ({"host": "127.0.0.1", "forwarded": "for=203.0.113.7"}, 403),
        ({"host": "127.0.0.1", "via": "1.1 proxy"}, 403),
    ],
)
async def test_without_tokens_other_origins_and_proxies_are_rejected(tmp_path, headers, status):
    """A host name may resolve to this machine, pages may simply send requests here, and proxies let others in."""
    async with in_process(tmp_path) as client:
        for path in ("/v1/messages", "/v1/messages/stream"):
            assert (await client.post(path, json=message(1), headers=headers)).status_code == status


async def test_a_token_that_is_deleted_from_the_file_is_revoked_at_once(tmp_path, caplog):
    """Also for streams that are open; while the file is invalid, the last tokens stay valid."""
    file = tmp_path / "tokens.toml"
    (ann, ann_entry), (bob, bob_entry) = new_token("ann", ["subscribe", "admin"]), new_token("bob", ["publish"])
    file.write_text(ann_entry + bob_entry)
    headers = [{"Authorization": f"Bearer {token}"} for token in (ann, bob)]
    async with on_network(tmp_path / "data", access=TokenFile(file)) as client:
        await client.put("/v1/subscriptions/s1", json=SUBSCRIPTIONS["boolean"], headers=headers[0])
        url = str(client.base_url.copy_with(scheme="ws", path="/v1/updates"))
        async with (
            connect(url, additional_headers=headers[0]) as socket,
            client.stream("GET", "/v1/updates/events", headers=headers[0]) as events,
            client.stream("GET", "/v1/feed", headers=headers[0]) as feed,
        ):
            assert '"ready"' in await socket.recv()
            file.write_text("[[token")
            assert (await client.get("/v1/subscriptions", headers=headers[0])).status_code == 200
            assert "the last tokens stay valid: tokens must be a TOML file of tokens" in caplog.text
            file.write_text(bob_entry)
            assert (await client.get("/v1/subscriptions", headers=headers[0])).status_code == 401
            assert (await client.post("/v1/messages", json=message(1), headers=headers[1])).status_code == 200
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd.code == 1008 and "the token is not known" in closed.value.rcvd.reason
            for stream in (events, feed):
                lines = [line async for line in stream.aiter_lines()]
                assert "event: closed" in lines and "event: update" not in lines


async def test_no_answer_may_be_guessed_to_be_a_page_or_shown_in_a_frame(tmp_path):
    async with in_process(tmp_path, max_body_bytes=1000) as client:
        answers = [await client.get(path) for path in ("/", "/web/app.js", "/v1/config", "/nowhere")]
        answers.append(await client.post("/v1/messages", json=message(1, "x" * 2000)))
        assert [answer.status_code for answer in answers] == [200, 200, 200, 404, 413]
        assert {answer.headers["x-content-type-options"] for answer in answers} == {"nosniff"}
        assert "frame-ancestors 'none'" in answers[0].headers["content-security-policy"]


def test_a_new_token_is_printed_and_only_its_hash_stored(tmp_path, capsys):
    file = tmp_path / "tokens.toml"
    arguments = ["serve", "--tokens", str(file), "--new-token"]
    assert main([*arguments, "ann"]) == 0
    token = capsys.readouterr().out.strip()
    assert main([*arguments, "root", "--scopes", "admin"]) == 0
    assert token not in file.read_text() and len(tomllib.loads(file.read_text())["token"]) == 2
    assert file.stat().st_mode & 0o077 == 0
    access = TokenFile(file)
    assert access.caller(token, "publish", headers={}) == Caller("ann", frozenset({"publish", "subscribe"}))
    assert main([*arguments, "a/b"]) == 2
    assert "subscriber must be 1 to 64 letters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[[token", "tokens must be a TOML file of tokens"),
        ("token = " + "[" * 3000, "tokens must be a TOML file of tokens: maximum recursion depth"),
        ("[token]\n", "tokens must contain only [[token]] tables; got ['token']"),
        ("[[token]]\nsubscriber = 'a'\n", "token must have the keys"),
        (new_token("ann", ["publish"])[1].replace("publish", "rule"), "scopes must be some of ['publish', 'subscribe', 'admin']; got ['rule']"),
        (new_token("ann", ["publish"])[1].replace("ann", ".."), "subscriber must be 1 to 64 letters"),
        (new_token("ann", ["publish"])[1].replace('sha256 = "', 'sha256 = "x'), "sha256 must be 64 hexadecimal digits"),
    ],
    ids=["syntax", "nesting", "table", "keys", "scopes", "subscriber", "sha256"],  # the same in every process
)  # fmt: skip
def test_an_invalid_file_of_tokens_is_rejected(tmp_path, text, error):
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    with pytest.raises(InvalidInput) as rejected:
        TokenFile(file)
    assert error in str(rejected.value)


def test_a_service_on_the_network_requires_tokens(tmp_path, capsys):
    assert main(["serve", "--data", str(tmp_path / "data"), "--city", "--host", "0.0.0.0"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("nearcast: tokens must be given for a host that others can reach, such as '0.0.0.0'")
    assert not (tmp_path / "data").exists()
