"""The address guard: webhooks reach the public internet and explicitly allowed networks, nothing else.

Any subscriber may name a URL, and must not use this service to reach what only this machine or its network can reach.
A host name proves nothing, so it is resolved when connecting, each address is checked, and the connection goes to a
checked address. TLS still checks the certificate against the name.
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

MAX_URL_LENGTH = 2_000
_NAT64 = IPv6Network("64:ff9b::/96")
_UNICAST = IPv6Network("2000::/3")
_SPECIAL = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"))  # newer Python versions know them
_RESOLVERS = 8
_RULE = "must be on the public internet or in a network that the service allows"


class AddressRefused(httpcore.ConnectError):
    """The guard does not allow an address."""


class AddressGuard:
    """Decides which addresses webhooks may reach."""

    def __init__(self, networks: Iterable[Network] = ()) -> None:
        """Allow networks besides the public internet."""
        self._networks = tuple(networks)

    def allows(self, address: Address) -> bool:
        """Return whether an address may be reached.

        >>> addresses = ("93.184.216.34", "10.0.0.1", "::ffff:127.0.0.1", "100.64.0.1")
        >>> [AddressGuard().allows(ip_address(address)) for address in addresses]
        [True, False, False, False]
        >>> AddressGuard([ip_network("10.0.0.0/8")]).allows(ip_address("10.0.0.1"))
        True
        """
        inner = _unwrap(address)
        return _is_public(inner) or any(one in network for one in (address, inner) for network in self._networks)

    def check(self, url: str) -> None:
        """Raise `InvalidInput` for a URL that is malformed, or whose literal address is not allowed."""
        require(len(url) <= MAX_URL_LENGTH, "url", f"must have at most {MAX_URL_LENGTH} characters", url)
        is_visible = url.isascii() and url.isprintable() and " " not in url
        rule = "must consist of visible ASCII characters; encode others as %XX, or as xn-- in host names"
        require(is_visible, "url", rule, url)
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise InvalidInput("url", f"must be a URL: {error}", url) from None
        require(parts.scheme in ("http", "https"), "url", "must begin with http:// or https://", url)
        has_credentials = parts.username is not None or parts.password is not None
        require(not has_credentials, "url", "must not contain a user name or password", url)
        require(bool(host) and port != 0, "url", "must name a host, and a port other than 0", url)
        literal = _literal(host or "")
        require(literal is None or self.allows(literal), "url", _RULE, url)


def parse_networks(texts: Iterable[str]) -> list[Network]:
    """Parse networks, or raise `InvalidInput`.

    >>> parse_networks(["10.0.0.0/8", "::1"])
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
    """Return the address that a host spells out, in any form that connecting accepts; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        try:
            return IPv4Address(socket.inet_aton(host))
        except (OSError, UnicodeError):
            return None


def _unwrap(address: Address) -> Address:
    """Return the IPv4 address inside a mapped, 6to4 or NAT64 address, and any other address unchanged."""
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


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connects only to addresses that a guard allows."""

    def __init__(self, guard: AddressGuard, *, resolve: Resolve) -> None:
        self._guard, self._resolve = guard, resolve
        self._inner = httpcore.AnyIOBackend()
        self._threads = ThreadPoolExecutor(_RESOLVERS, "webhook-names")  # resolving may take long and must not block

    def close(self) -> None:
        """Stop resolving names."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first allowed address of a host that accepts the connection."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._threads, self._resolve, host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"the name {host!r} cannot be resolved: {error}") from None
        allowed = [address for address in found if self._guard.allows(ip_address(address))]
        if not allowed:
            raise AddressRefused(f"the address of {host!r} {_RULE}")  # the address itself stays private
        for address in allowed[:-1]:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._inner.connect_tcp(allowed[-1], port, timeout, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
