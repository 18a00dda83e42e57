"""Access control: tokens with scopes, stored as hashes. Without a file of tokens there is one local subscriber.

    [[token]]                       # tokens.toml
    sha256 = "9f86d081..."          # of the token: the file does not reveal it
    subscriber = "ann"
    scopes = ["publish", "subscribe"]

`publish` allows sending messages, `subscribe` managing subscriptions and receiving updates, `admin` reading the
metrics and the feed of the whole service. The file is read again when it changes, so a token that is deleted there is
revoked at once, also for streams that are open.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import logging
import re
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from nearcast.errors import InvalidInput, require
from nearcast.service.api.problems import Problem

Scope = Literal["publish", "subscribe", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
_log = logging.getLogger(__name__)
SUBSCRIBER = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")


class Caller(NamedTuple):
    """The subscriber that sends a request, and its scopes."""

    subscriber: str
    scopes: frozenset[str]


LOCAL_CALLER = Caller("local", frozenset(SCOPES))
"""The caller of every request without tokens."""


class AccessControl:
    """Maps tokens to callers."""

    def __init__(self, callers: Mapping[str, Caller] | None) -> None:
        """Take callers by the hash of their token; None requires no tokens."""
        self._callers = callers

    @property
    def is_open(self) -> bool:
        """True if no token is required."""
        return self._callers is None

    def caller(self, token: str | None, scope: Scope, *, headers: Mapping[str, str]) -> Caller:
        """Return the caller of a token, or raise a `Problem`."""
        if self._callers is None:
            _check_local(headers)
            return LOCAL_CALLER
        found = None if token is None else self._callers.get(hash_token(token))
        if found is None:
            reason = "a token is required" if token is None else "the token is not known"
            raise Problem(401, f"{reason}, as Authorization: Bearer TOKEN", headers={"WWW-Authenticate": "Bearer"})
        if scope not in found.scopes:
            raise Problem(403, f"the token must have scope {scope!r}; it has {sorted(found.scopes)}")
        return found


class TokenFile(AccessControl):
    """The tokens of a file, which is read again when it changes; while it is invalid, the last tokens stay valid."""

    def __init__(self, file: Path) -> None:
        """Read the file, or raise `InvalidInput`."""
        self._file, self._version = file, _version_of(file)
        super().__init__(_read_callers(file))

    def caller(self, token: str | None, scope: Scope, *, headers: Mapping[str, str]) -> Caller:
        """Return the caller of a token, or raise a `Problem`."""
        version = _version_of(self._file)
        if version != self._version:
            self._version = version
            try:
                self._callers = _read_callers(self._file)
            except InvalidInput as error:
                _log.error("the last tokens stay valid: %s", error)
        return super().caller(token, scope, headers=headers)


def _version_of(file: Path) -> tuple[int, ...] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


def _check_local(headers: Mapping[str, str]) -> None:
    """Raise a `Problem` for a request that did not come from this machine, or not by the will of its user.

    Without tokens a foreign web page could do everything that its reader can: under its own name, if that name
    resolves to this machine (DNS rebinding), or by simply sending here, which browsers allow any page to do. A proxy
    could let everyone in.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    if not is_loopback(_host_name(f"//{host}")):
        raise Problem(403, f"without tokens the service answers only as localhost; the request was for {host!r}")
    if origin is not None and (_host_name(origin) is None or urlsplit(origin).netloc != host):
        raise Problem(403, f"without tokens the service answers no pages of other origins; got {origin!r}")
    for name in _PROXY_HEADERS:
        if name in headers:
            raise Problem(403, f"without tokens the service answers no requests of proxies; got the header {name!r}")


def _host_name(url: str) -> str | None:
    """Return the host of a URL; None if there is none, or the URL is not valid."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def is_loopback(host: str | None) -> bool:
    """Return whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"


def hash_token(token: str) -> str:
    """Return the hash of a token."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def _read_callers(file: Path) -> dict[str, Caller]:
    try:
        content = tomllib.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput("tokens", f"must be a TOML file of tokens: {error}", str(file)) from None
    rows = content.get("token")
    is_list = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    require(is_list and set(content) == {"token"}, "tokens", "must contain only [[token]] tables", sorted(content))
    callers = {}
    for number, row in enumerate(rows or (), 1):
        subject = f"token {number} of {file}"
        _check_row(row, subject)
        callers[row["sha256"]] = Caller(row["subscriber"], frozenset(row["scopes"]))
    return callers


def _check_row(row: Mapping[str, Any], subject: str) -> None:
    keys = ["sha256", "subscriber", "scopes"]
    require(sorted(row) == sorted(keys), "token", f"must have the keys {keys}", sorted(row), subject=subject)
    digest, name, scopes = (row[key] for key in keys)
    is_hash = isinstance(digest, str) and _HASH.fullmatch(digest)
    require(bool(is_hash), "sha256", "must be 64 hexadecimal digits", digest, subject=subject)
    check_subscriber(name, subject=subject)
    is_valid = isinstance(scopes, list) and scopes and all(scope in SCOPES for scope in scopes)
    require(bool(is_valid), "scopes", f"must be some of {list(SCOPES)}", scopes, subject=subject)


def check_subscriber(name: Any, *, subject: str = "") -> None:
    """Raise `InvalidInput` unless a name is a valid subscriber."""
    is_valid = isinstance(name, str) and SUBSCRIBER.fullmatch(name)
    rule = "must be 1 to 64 letters, digits or any of . _ ~ -, not starting with a dot"
    require(bool(is_valid), "subscriber", rule, name, subject=subject)


def new_token(subscriber: str, scopes: Sequence[Scope]) -> tuple[str, str]:
    """Return a new token, and its entry for a file of tokens."""
    check_subscriber(subscriber)
    token = f"nc_{secrets.token_urlsafe(32)}"
    lines = [
        "[[token]]",
        f'sha256 = "{hash_token(token)}"',
        f'subscriber = "{subscriber}"',
        f"scopes = {json.dumps(list(scopes))}",
    ]
    return token, "\n".join(lines) + "\n"
