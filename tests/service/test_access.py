"""Does everyone see only their own, and do only what they may?"""

import tomllib

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from nearcast.cli import main
from nearcast.errors import InvalidInput
from nearcast.service.access import Caller, hash_of, new_token, read_tokens
from service.served import KINDS, listening, message, serving

CALLERS = {
    hash_of(f"{name}-token"): Caller(name, frozenset(scopes))
    for name, scopes in {
        "ann": ["subscribe"], "bob": ["subscribe", "publish"], "eve": ["publish"], "root": ["admin"],
    }.items()
}  # fmt: skip


def by(name):
    return {"Authorization": f"Bearer {name}-token"}


async def test_a_subscriber_sees_only_its_own(tmp_path):
    async with serving(tmp_path, callers=CALLERS) as client:
        for name in ("ann", "bob"):
            body = {**KINDS["topk"], "keywords": f"{name} coffee"}
            assert (await client.put("/v1/subscriptions/s1", json=body, headers=by(name))).status_code == 201
        await client.put("/v1/subscriptions/own", json=KINDS["boolean"], headers=by("bob"))
        await client.post("/v1/messages", json=message(1), headers=by("eve"))
        assert (await client.get("/v1/subscriptions/s1", headers=by("ann"))).json()["keywords"] == "ann coffee"
        listed = (await client.get("/v1/subscriptions", headers=by("ann"))).json()["subscriptions"]
        assert [one["id"] for one in listed] == ["s1"]
        for path in ("own", "own/results", "own/explain?message=m1"):
            assert (await client.get(f"/v1/subscriptions/{path}", headers=by("ann"))).status_code == 404
        assert (await client.delete("/v1/subscriptions/own", headers=by("ann"))).status_code == 404
        assert (await client.delete("/v1/subscriptions/own", headers=by("bob"))).status_code == 200


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
async def test_scopes_say_what_one_may_do(tmp_path, method, path, allowed):
    async with serving(tmp_path, callers=CALLERS) as client:
        for name in ("ann", "bob", "eve", "root"):
            said = await client.request(method, path, headers=by(name), json=message(1) if method == "POST" else None)
            assert said.status_code == (200 if name in allowed else 403), (name, said.text)
        if path != "/health/ready":
            for headers in ({}, by("mallory"), {"Authorization": "Basic x"}):
                said = await client.request(method, path, headers=headers, json=message(1))
                assert said.status_code == 401
                assert said.headers["www-authenticate"] == "Bearer"


async def test_who_listens_hears_only_of_its_own(tmp_path):
    async with listening(tmp_path, callers=CALLERS) as client:
        for name in ("ann", "bob"):
            await client.put(f"/v1/subscriptions/{name}1", json=KINDS["boolean"], headers=by(name))
        url = str(client.base_url.copy_with(scheme="ws", path="/v1/updates"))
        async with (
            connect(url, additional_headers=by("ann")) as ann,
            connect(f"{url}?token=bob-token&subscription=ann1&subscription=bob1") as bob,
        ):
            await ann.recv()
            await bob.recv()
            await client.post("/v1/messages", json=message(1), headers=by("eve"))
            assert '"ann1"' in await ann.recv()
            assert '"bob1"' in await bob.recv()
        for query, status in (("", 401), ("?token=eve-token", 403)):
            with pytest.raises(InvalidStatus) as refused:
                await connect(url + query).__aenter__()
            assert refused.value.response.status_code == status
            assert (await client.get(f"/v1/updates/events{query}")).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "elsewhere.example:8080"}, 403),
        ({"host": "localhost:8080", "origin": "http://elsewhere.example"}, 403),
        ({"host": "localhost:8080", "origin": "null"}, 403),
        ({"host": "localhost:8080", "origin": "http://localhost:8080"}, 200),
        ({"host": "[::1]:8080"}, 200),
    ],
)
async def test_without_tokens_a_page_of_elsewhere_is_not_let_in(tmp_path, headers, status):
    """Its name may have been turned to this machine, or it just sends here."""
    async with serving(tmp_path) as client:
        for path in ("/v1/messages", "/v1/messages/stream"):
            assert (await client.post(path, json=message(1), headers=headers)).status_code == status


def test_a_token_is_made_and_only_its_hash_is_kept(tmp_path, capsys):
    file = tmp_path / "tokens.toml"
    words = ["serve", "--tokens", str(file), "--new-token"]
    assert main([*words, "ann"]) == 0
    token = capsys.readouterr().out.strip()
    assert main([*words, "root", "--scopes", "admin"]) == 0
    assert token not in file.read_text() and len(tomllib.loads(file.read_text())["token"]) == 2
    assert file.stat().st_mode & 0o077 == 0
    access = read_tokens(file)
    assert access.caller(token, "publish", headers={}) == Caller("ann", frozenset({"publish", "subscribe"}))
    assert main([*words, "a/b"]) == 2
    assert "subscriber must be 1 to 64 letters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[token", "tokens must be a TOML file of tokens"),
        ("[token]\n", "tokens must hold [[token]] tables only; got ['token']"),
        ("[[token]]\nsubscriber = 'a'\n", "token must have the keys"),
        (new_token("ann", ["publish"])[1].replace("publish", "rule"), "scopes must be some of ['publish', 'subscribe', 'admin']; got ['rule']"),
        (new_token("ann", ["publish"])[1].replace("ann", ".."), "subscriber must be 1 to 64 letters"),
        (new_token("ann", ["publish"])[1].replace('sha256 = "', 'sha256 = "x'), "sha256 must be 64 hexadecimal digits"),
    ],
)  # fmt: skip
def test_a_bad_file_of_tokens_is_refused(tmp_path, text, said):
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    with pytest.raises(InvalidInput) as refused:
        read_tokens(file)
    assert said in str(refused.value)


def test_a_service_that_others_can_reach_must_have_tokens(tmp_path, capsys):
    assert main(["serve", "--data", str(tmp_path / "data"), "--city", "--host", "0.0.0.0"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("nearcast: tokens must be given where the host is not this machine alone, as '0.0.0.0' is")
    assert not (tmp_path / "data").exists()
