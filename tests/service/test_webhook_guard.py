"""Can nobody reach through a webhook what only this machine can?"""

import ssl
from ipaddress import ip_address
from pathlib import Path

import pytest

from nearcast.cli import main
from nearcast.errors import InvalidInput
from nearcast.service.webhooks.client import WebhookClient
from nearcast.service.webhooks.guard import Guard, read_networks
from service.receiver import receiving
from service.served import serving

PEM = Path(__file__).with_name("hooks.pem")
INSIDE = [
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
    "240.0.0.1", "255.255.255.255", "192.0.0.8", "198.18.0.1", "192.0.2.1", "::", "::1", "fe80::1", "fec0::1", "fc00::1",
    "ff02::1", "::ffff:10.0.0.1", "::127.0.0.1", "2002:7f00:1::", "2002:a00:1::1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::808:808", "2001::1", "2001:db8::1", "100::1", "4000::1",
]  # fmt: skip
OUTSIDE = ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "2002:808:808::1", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", INSIDE)
def test_addresses_of_the_inside_are_refused(address):
    assert not Guard().allows(ip_address(address))


@pytest.mark.parametrize("address", OUTSIDE)
def test_addresses_of_the_internet_are_allowed(address):
    assert Guard().allows(ip_address(address))


def test_a_network_can_be_allowed_however_it_is_written():
    guard = Guard(read_networks(["10.0.0.0/8", "fc00::/7"]))
    assert all(guard.allows(ip_address(one)) for one in ("10.9.9.9", "::ffff:10.0.0.1", "64:ff9b::a00:1", "fd00::1"))
    assert not any(guard.allows(ip_address(one)) for one in ("192.168.0.1", "127.0.0.1", "::1"))


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        *((f"http://[{one}]/" if ":" in one else f"https://{one}:8443/x", "must be of the public internet") for one in INSIDE),
        ("http://2130706433/", "must be of the public internet"),
        ("http://0x7f.1/", "must be of the public internet"),
        ("ftp://hooks.example/", "must begin with http:// or https://"),
        ("hooks.example", "must begin with http:// or https://"),
        ("https://ann:secret@hooks.example/", "must hold no name and no password"),
        ("https://@hooks.example/", "must hold no name and no password"),
        ("https:///path", "must name a host"),
        ("https://hooks.example:0/", "must name a host, and no port 0"),
        ("https://hooks.example:99999/", "must be a URL"),
        ("https://[::1/", "must be a URL"),
        ("https://hööks.example/", "must be of visible ASCII characters"),
        ("https://hooks.example/\r\nX: y", "must be of visible ASCII characters"),
        (f"https://hooks.example/{'x' * 2000}", "must have 2000 characters at most"),
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_is_refused(url, rule):
    with pytest.raises(InvalidInput) as refused:
        Guard().check(url)
    assert (refused.value.field, refused.value.value) == ("url", url) and refused.value.rule.startswith(rule)


async def test_a_client_hears_at_once_what_is_wrong_with_a_url(tmp_path):
    async with serving(tmp_path, webhooks={"networks": ()}) as client:
        said = await client.put("/v1/webhooks/h1", json={"url": "http://127.0.0.1/"})
        assert said.status_code == 422
        (fault,) = said.json()["errors"]
        assert (fault["field"], fault["value"]) == ("url", "http://127.0.0.1/") and "public internet" in fault["rule"]
        assert (await client.get("/v1/webhooks")).json()["webhooks"] == []


async def attempted(url, *, networks=(), resolve=None, trusted=None):
    """Return what came of one attempt, and all names that were looked up."""
    asked = []

    def look_up(host, port):
        asked.append(host)
        return resolve(len(asked))

    given = {} if resolve is None else {"resolve": look_up}
    client = WebhookClient(Guard(read_networks(networks)), trusted=trusted, **given)
    try:
        return await client.attempt(url, b"{}", {}), asked
    finally:
        await client.close()


async def test_a_name_of_an_inner_address_is_refused():
    async with receiving() as receiver:
        for host in ("localhost", "127.1"):
            said, _ = await attempted(f"http://{host}:{receiver.port}/")
            assert said.outcome == "refused" and "127" not in said.why.replace(host, "")
        assert receiver.got.empty()


async def test_a_name_that_changes_after_the_check_is_not_looked_up_again():
    """First an address that is allowed, then, for who would ask again to connect, one that is not."""
    async with receiving() as receiver:
        said, asked = await attempted(
            f"http://hooks.example:{receiver.port}/",
            networks=["127.0.0.2/32"],
            resolve=lambda times: ["127.0.0.2"] if times == 1 else ["127.0.0.1"],
        )
        assert said.outcome == "failed" and asked == ["hooks.example"] and receiver.got.empty()


async def test_of_several_addresses_only_allowed_ones_are_tried():
    async with receiving() as receiver:
        said, _ = await attempted(
            f"http://hooks.example:{receiver.port}/",
            networks=["127.0.0.1/32", "127.0.0.3/32"],
            resolve=lambda times: ["10.0.0.1", "127.0.0.3", "::1", "127.0.0.1"],
        )
        assert said.outcome == "acknowledged"
        (delivery,) = await receiver.take()
        assert delivery.headers["host"] == f"hooks.example:{receiver.port}"


async def test_a_redirect_is_not_followed():
    async with receiving() as inner, receiving((307, {"Location": inner.url})) as receiver:
        said, _ = await attempted(receiver.url, networks=["127.0.0.0/8"])
        assert (said.outcome, said.why) == ("failed", "the receiver answered 307; redirects are not followed")
        assert inner.got.empty()


async def test_proxies_of_the_environment_are_not_asked(monkeypatch):
    async with receiving() as proxy, receiving() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        said, _ = await attempted(receiver.url, networks=["127.0.0.0/8"])
        assert said.outcome == "acknowledged" and proxy.got.empty()


@pytest.mark.parametrize(("host", "outcome"), [("hooks.example", "acknowledged"), ("other.example", "failed")])
async def test_a_certificate_must_be_of_the_name_and_not_the_address(host, outcome):
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(PEM)
    async with receiving(ssl=own) as receiver:
        said, _ = await attempted(
            f"https://{host}:{receiver.port}/",
            networks=["127.0.0.0/8"],
            resolve=lambda times: ["127.0.0.1"],
            trusted=ssl.create_default_context(cafile=PEM),
        )
        assert said.outcome == outcome, said
        assert receiver.got.empty() == (outcome == "failed")


async def test_an_endless_answer_is_not_read_to_its_end():
    """Its status counts; who sends more than a little is hung up on."""
    async with receiving((200, {"Content-Length": "1000000000000"})) as receiver:
        said, _ = await attempted(receiver.url, networks=["127.0.0.0/8"])
        assert said.outcome == "acknowledged"


def test_networks_that_are_none_are_said(tmp_path, capsys):
    words = ["serve", "--data", str(tmp_path / "new"), "--city", "--port", "0", "--webhook-networks", "10.0.0.1/8"]
    assert main(words) == 2
    assert "webhook-networks must be networks such as 10.0.0.0/8" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
