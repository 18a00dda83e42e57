"""Webhooks cannot reach addresses that only this machine or its network can reach."""

import ssl
from ipaddress import ip_address
from pathlib import Path

import pytest

from nearcast.cli import main
from nearcast.errors import InvalidInput
from nearcast.service.push.webhooks.address_guard import AddressGuard, parse_networks
from nearcast.service.push.webhooks.client import WebhookClient
from service.running_service import in_process
from service.webhook_receiver import run_receiver

PEM = Path(__file__).with_name("webhook_receiver.pem")
NON_PUBLIC = [
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
    "240.0.0.1", "255.255.255.255", "192.0.0.8", "198.18.0.1", "192.0.2.1", "::", "::1", "fe80::1", "fec0::1", "fc00::1",
    "ff02::1", "::ffff:10.0.0.1", "::127.0.0.1", "2002:7f00:1::", "2002:a00:1::1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::808:808", "2001::1", "2001:db8::1", "100::1", "4000::1",
]  # fmt: skip
PUBLIC = ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "2002:808:808::1", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", NON_PUBLIC)
def test_non_public_addresses_are_refused(address):
    assert not AddressGuard().allows(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address):
    assert AddressGuard().allows(ip_address(address))


def test_an_allowed_network_covers_addresses_that_wrap_it():
    guard = AddressGuard(parse_networks(["10.0.0.0/8", "fc00::/7"]))
    assert all(guard.allows(ip_address(one)) for one in ("10.9.9.9", "::ffff:10.0.0.1", "64:ff9b::a00:1", "fd00::1"))
    assert not any(guard.allows(ip_address(one)) for one in ("192.168.0.1", "127.0.0.1", "::1"))


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        *((f"http://[{one}]/" if ":" in one else f"https://{one}:8443/x", "must be on the public internet") for one in NON_PUBLIC),
        ("http://2130706433/", "must be on the public internet"),
        ("http://0x7f.1/", "must be on the public internet"),
        ("ftp://hooks.example/", "must begin with http:// or https://"),
        ("hooks.example", "must begin with http:// or https://"),
        ("https://ann:secret@hooks.example/", "must not contain a user name or password"),
        ("https://@hooks.example/", "must not contain a user name or password"),
        ("https:///path", "must name a host"),
        ("https://hooks.example:0/", "must name a host, and a port other than 0"),
        ("https://hooks.example:99999/", "must be a URL"),
        ("https://[::1/", "must be a URL"),
        ("https://hööks.example/", "must consist of visible ASCII characters"),
        ("https://hooks.example/\r\nX: y", "must consist of visible ASCII characters"),
        (f"https://hooks.example/{'x' * 2000}", "must have at most 2000 characters"),
    ],
)  # fmt: skip
def test_invalid_urls_are_rejected(url, rule):
    with pytest.raises(InvalidInput) as rejected:
        AddressGuard().check(url)
    assert (rejected.value.field, rejected.value.value) == ("url", url) and rejected.value.rule.startswith(rule)


async def test_an_invalid_url_is_rejected_at_once(tmp_path):
    async with in_process(tmp_path, webhooks={"networks": ()}) as client:
        response = await client.put("/v1/webhooks/h1", json={"url": "http://127.0.0.1/"})
        assert response.status_code == 422
        (error,) = response.json()["errors"]
        assert (error["field"], error["value"]) == ("url", "http://127.0.0.1/") and "public internet" in error["rule"]
        assert (await client.get("/v1/webhooks")).json()["webhooks"] == []


async def attempt(url, *, networks=(), resolve=None, trusted=None):
    """Return the result of one attempt, and all names that were resolved."""
    names = []

    def resolve_host(host, port):
        names.append(host)
        return resolve(len(names))

    options = {} if resolve is None else {"resolve": resolve_host}
    client = WebhookClient(AddressGuard(parse_networks(networks)), trusted=trusted, **options)
    try:
        return await client.attempt(url, b"{}", {}), names
    finally:
        await client.close()


async def test_a_name_of_a_non_public_address_is_refused():
    async with run_receiver() as receiver:
        for host in ("localhost", "127.1"):
            result, _ = await attempt(f"http://{host}:{receiver.port}/")
            assert result.outcome == "refused" and "127" not in result.reason.replace(host, "")
        assert receiver.deliveries.empty()


async def test_a_name_is_resolved_once_per_connection():
    """A name that resolves to an allowed address first, and to another one later."""
    async with run_receiver() as receiver:
        result, names = await attempt(
            f"http://hooks.example:{receiver.port}/",
            networks=["127.0.0.2/32"],
            resolve=lambda times: ["127.0.0.2"] if times == 1 else ["127.0.0.1"],
        )
        assert result.outcome == "failed" and names == ["hooks.example"] and receiver.deliveries.empty()


async def test_only_allowed_addresses_of_a_name_are_tried():
    async with run_receiver() as receiver:
        result, _ = await attempt(
            f"http://hooks.example:{receiver.port}/",
            networks=["127.0.0.1/32", "127.0.0.3/32"],
            resolve=lambda times: ["10.0.0.1", "127.0.0.3", "::1", "127.0.0.1"],
        )
        assert result.outcome == "acknowledged"
        (delivery,) = await receiver.take()
        assert delivery.headers["host"] == f"hooks.example:{receiver.port}"


async def test_a_redirect_is_not_followed():
    async with run_receiver() as target, run_receiver((307, {"Location": target.url})) as receiver:
        result, _ = await attempt(receiver.url, networks=["127.0.0.0/8"])
        assert (result.outcome, result.reason) == ("failed", "the receiver answered 307; redirects are not followed")
        assert target.deliveries.empty()


async def test_proxies_of_the_environment_are_not_used(monkeypatch):
    async with run_receiver() as proxy, run_receiver() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        result, _ = await attempt(receiver.url, networks=["127.0.0.0/8"])
        assert result.outcome == "acknowledged" and proxy.deliveries.empty()


@pytest.mark.parametrize(("host", "outcome"), [("hooks.example", "acknowledged"), ("other.example", "failed")])
async def test_the_certificate_is_checked_against_the_name(host, outcome):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    async with run_receiver(ssl=context) as receiver:
        result, _ = await attempt(
            f"https://{host}:{receiver.port}/",
            networks=["127.0.0.0/8"],
            resolve=lambda times: ["127.0.0.1"],
            trusted=ssl.create_default_context(cafile=PEM),
        )
        assert result.outcome == outcome, result
        assert receiver.deliveries.empty() == (outcome == "failed")


async def test_an_endless_answer_is_cut_off():
    """Its status counts; the connection is closed after a few kilobytes."""
    async with run_receiver((200, {"Content-Length": "1000000000000"})) as receiver:
        result, _ = await attempt(receiver.url, networks=["127.0.0.0/8"])
        assert result.outcome == "acknowledged"


def test_invalid_networks_are_rejected(tmp_path, capsys):
    arguments = [
        "serve",
        "--data",
        str(tmp_path / "new"),
        "--city",
        "--port",
        "0",
        "--webhook-networks",
        "10.0.0.1/8",
    ]
    assert main(arguments) == 2
    assert "webhook-networks must be networks such as 10.0.0.0/8" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
