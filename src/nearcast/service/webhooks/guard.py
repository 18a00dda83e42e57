"""Which addresses may be reached? Those of the public internet, and networks that were allowed.

Whoever may subscribe may name an address, and must not reach through this service what only this machine or its
neighbours can. A name proves nothing: what it stands for is looked up when connecting, each address is checked, and a
checked one is what is connected to. TLS still holds the name against the certificate.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

import httpcore

from nearcast.errors import InvalidInput, require

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Sequence[str]]

LONGEST_URL = 2_000
_NAT64 = IPv6Network("64:ff9b::/96")
_UNICAST = IPv6Network("2000::/3")
_SPECIAL = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"))  # newer Pythons know them
_RESOLVERS = 8
_RULE = "must be of the public internet, or of a network that the service allows"


class Refused(httpcore.ConnectError):
    """An address that must not be reached."""


class Guard:
    """Knows which addresses may be reached."""

    def __init__(self, networks: Iterable[Network] = ()) -> None:
        """Take networks that may be reached though they are not public."""
        self._networks = tuple(networks)

    def allows(self, address: Address) -> bool:
        """Tell whether an address may be reached.

        >>> [Guard().allows(ip_address(a)) for a in ("93.184.216.34", "10.0.0.1", "::ffff:127.0.0.1", "100.64.0.1")]
        [True, False, False, False]
        >>> Guard([ip_network("10.0.0.0/8")]).allows(ip_address("10.0.0.1"))
        True
        """
        meant = _meant(address)
        return _is_public(meant) or any(one in network for one in (address, meant) for network in self._networks)

    def check(self, url: str) -> None:
        """Raise `InvalidInput` unless deliveries may go to a URL, as far as that can be said before they do."""
        require(len(url) <= LONGEST_URL, "url", f"must have {LONGEST_URL} characters at most", url)
        fits = url.isascii() and url.isprintable() and " " not in url
        require(
            fits, "url", "must be of visible ASCII characters; others can be written as %XX, or xn-- in names", url
        )
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise InvalidInput("url", f"must be a URL: {error}", url) from None
        require(parts.scheme in ("http", "https"), "url", "must begin with http:// or https://", url)
        require(parts.username is None and parts.password is None, "url", "must hold no name and no password", url)
        require(bool(host) and port != 0, "url", "must name a host, and no port 0", url)
        literal = _literal(host or "")
        require(literal is None or self.allows(literal), "url", _RULE, url)


def read_networks(texts: Iterable[str]) -> list[Network]:
    """Read networks as they are written, or raise `InvalidInput`.

    >>> read_networks(["10.0.0.0/8", "::1"])
    [IPv4Network('10.0.0.0/8'), IPv6Network('::1/128')]
    """
    networks = []
    for text in texts:
        try:
            networks.append(ip_network(text))
        except ValueError as error:
            raise InvalidInput("webhook-networks", f"must be networks such as 10.0.0.0/8: {error}", text) from None
    return networks


def _literal(host: str) -> Address | None:
    """Return the address that a host is, in any form that connecting would understand."""
    try:
        return ip_address(host)
    except ValueError:
        try:
            return IPv4Address(socket.inet_aton(host))
        except (OSError, UnicodeError):
            return None


def _meant(address: Address) -> Address:
    """Return where packets for an address end: some of IPv6 stand for one of IPv4."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and address not in _UNICAST:
        return False
    if any(address in network for network in _SPECIAL):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


def look_up(host: str, port: int) -> list[str]:
    """Return the addresses of a host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(where[0]) for *_, where in found))


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connects to addresses that a guard allows, and to no others."""

    def __init__(self, guard: Guard, *, resolve: Resolve) -> None:
        self._guard, self._resolve = guard, resolve
        self._inner = httpcore.AnyIOBackend()
        self._threads = ThreadPoolExecutor(_RESOLVERS, "webhook-names")  # names can take long, and others wait too

    def close(self) -> None:
        """Look nothing up any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first allowed address of a host that takes it."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._threads, self._resolve, host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"the name {host!r} cannot be looked up: {error}") from None
        allowed = [one for one in found if self._guard.allows(ip_address(one))]
        if not allowed:
            raise Refused(f"the address of {host!r} {_RULE}")  # which it is is nobody's business
        for address in allowed[:-1]:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._inner.connect_tcp(allowed[-1], port, timeout, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
