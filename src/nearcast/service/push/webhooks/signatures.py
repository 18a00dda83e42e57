"""Signatures of deliveries with a shared secret, as Standard Webhooks specifies them."""

from __future__ import annotations

import hmac
import secrets as random_secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable

_PREFIX = "whsec_"


def new_secret() -> str:
    """Return a new random secret."""
    return _PREFIX + b64encode(random_secrets.token_bytes(32)).decode()


def new_delivery_id() -> str:
    """Return a new unique id of a delivery."""
    return f"msg_{random_secrets.token_hex(16)}"


def delivery_headers(delivery: str, body: bytes, *, secrets: Iterable[str], at: int) -> dict[str, str]:
    """Return the headers of a delivery: its id, the time, and one signature per secret."""
    return {
        "webhook-id": delivery,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(sign(secret, delivery, at, body) for secret in secrets),
    }


def sign(secret: str, delivery: str, at: int, body: bytes) -> str:
    """Return the signature of a delivery.

    >>> sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330,
    ...      b'{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    content = f"{delivery}.{at}.".encode() + body
    digest = hmac.digest(b64decode(secret.removeprefix(_PREFIX)), content, "sha256")
    return f"v1,{b64encode(digest).decode()}"
