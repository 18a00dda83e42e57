"""How does a receiver know who sends? Signatures with a secret that only both know, as Standard Webhooks has them."""

from __future__ import annotations

import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable

_PREFIX = "whsec_"


def new_secret() -> str:
    """Return a secret that nobody knows yet."""
    return _PREFIX + b64encode(secrets.token_bytes(32)).decode()


def new_delivery() -> str:
    """Return an id that no delivery had yet."""
    return f"msg_{secrets.token_hex(16)}"


def headers_of(delivery: str, body: bytes, *, keys: Iterable[str], at: int) -> dict[str, str]:
    """Return what goes with a delivery: its id, when it is sent, and a signature for each secret."""
    return {
        "webhook-id": delivery,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(signature(key, delivery, at, body) for key in keys),
    }


def signature(key: str, delivery: str, at: int, body: bytes) -> str:
    """Sign a delivery.

    >>> signature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330,
    ...           b'{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    signed = f"{delivery}.{at}.".encode() + body
    digest = hmac.digest(b64decode(key.removeprefix(_PREFIX)), signed, "sha256")
    return f"v1,{b64encode(digest).decode()}"
