"""What does a first run wait for? Kernels, compiled once a machine: it says so, and does it before the show."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def rehearse(call: Callable[[], Any]) -> None:
    """Run something small of what is to come; if that compiles kernels, say so in one line."""
    from nearcast._jit import warm

    warm([call], progress=lambda line: print(f"nearcast: {line}", file=sys.stderr, flush=True))
