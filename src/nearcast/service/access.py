"""Who may do what? Tokens with scopes, by their hashes; without a file of tokens, everyone is the same subscriber.

    [[token]]                       # tokens.toml
    sha256 = "9f86d081..."          # of the token: who reads the file cannot use it
    subscriber = "ann"
    scopes = ["publish", "subscribe"]

`publish` sends messages, `subscribe` asks and listens, `admin` reads the figures of the whole service.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from nearcast.errors import InvalidInput, require
from nearcast.service.problem import Problem

Scope = Literal["publish", "subscribe", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
SUBSCRIBER = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")


class Caller(NamedTuple):
    """Who asks."""

    subscriber: str
    scopes: frozenset[str]


ANYONE = Caller("local", frozenset(SCOPES))
"""Who everyone is without tokens."""


class Access:
    """Tells who a token belongs to."""

    def __init__(self, callers: Mapping[str, Caller] | None) -> None:
        """Take callers by the hash of their token; None lets everyone in."""
        self._callers = callers

    @property
    def is_open(self) -> bool:
        """True if nobody needs a token."""
        return self._callers is None

    def caller(self, token: str | None, scope: Scope, *, headers: Mapping[str, str]) -> Caller:
        """Return whose token it is, or raise the problem with it."""
        if self._callers is None:
            _check_local(headers)
            return ANYONE
        found = None if token is None else self._callers.get(hash_of(token))
        if found is None:
            why = "a token must be sent" if token is None else "the token is not known"
            raise Problem(401, f"{why}, as Authorization: Bearer TOKEN", headers={"WWW-Authenticate": "Bearer"})
        if scope not in found.scopes:
            raise Problem(403, f"the token must have scope {scope!r}; it has {sorted(found.scopes)}")
        return found


def _check_local(headers: Mapping[str, str]) -> None:
    """Raise the problem of a request that a browser may have been tricked into.

    Without tokens a page of elsewhere could do everything that its reader can: under its own name, where that was
    turned to this machine (DNS rebinding), or simply by sending here, as browsers let any page do.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    if not is_loopback(urlsplit(f"//{host}").hostname):
        raise Problem(403, f"without tokens this is only served as localhost; you asked {host!r}")
    if origin is not None and urlsplit(origin).netloc != host:
        raise Problem(403, f"without tokens a page of {origin!r} must not come here")


def is_loopback(host: str | None) -> bool:
    """Tell whether only this machine reaches an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"


def hash_of(token: str) -> str:
    """Return what is written down of a token."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def read_tokens(file: Path) -> Access:
    """Read a file of tokens, or raise `InvalidInput`."""
    try:
        content = tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise InvalidInput("tokens", f"must be a TOML file of tokens: {error}", str(file)) from None
    listed = content.get("token")
    is_list = isinstance(listed, list) and all(isinstance(row, dict) for row in listed)
    require(is_list and set(content) == {"token"}, "tokens", "must hold [[token]] tables only", sorted(content))
    callers = {}
    for number, row in enumerate(listed or (), 1):
        subject = f"token {number} of {file}"
        _check_row(row, subject)
        callers[row["sha256"]] = Caller(row["subscriber"], frozenset(row["scopes"]))
    return Access(callers)


def _check_row(row: Mapping[str, Any], subject: str) -> None:
    keys = ["sha256", "subscriber", "scopes"]
    require(sorted(row) == sorted(keys), "token", f"must have the keys {keys}", sorted(row), subject=subject)
    hashed, name, scopes = (row[key] for key in keys)
    is_hash = isinstance(hashed, str) and _HASH.fullmatch(hashed)
    require(bool(is_hash), "sha256", "must be 64 hexadecimal digits", hashed, subject=subject)
    check_subscriber(name, subject=subject)
    ok = isinstance(scopes, list) and scopes and all(scope in SCOPES for scope in scopes)
    require(bool(ok), "scopes", f"must be some of {list(SCOPES)}", scopes, subject=subject)


def check_subscriber(name: Any, *, subject: str = "") -> None:
    """Raise `InvalidInput` unless a subscriber may have this name."""
    ok = isinstance(name, str) and SUBSCRIBER.fullmatch(name)
    rule = "must be 1 to 64 letters, digits or any of . _ ~ -, no dot first"
    require(bool(ok), "subscriber", rule, name, subject=subject)


def new_token(subscriber: str, scopes: Sequence[Scope]) -> tuple[str, str]:
    """Return a token, and what to add to a file of tokens for it."""
    check_subscriber(subscriber)
    token = f"nc_{secrets.token_urlsafe(32)}"
    lines = [
        "[[token]]",
        f'sha256 = "{hash_of(token)}"',
        f'subscriber = "{subscriber}"',
        f"scopes = {json.dumps(list(scopes))}",
    ]
    return token, "\n".join(lines) + "\n"
