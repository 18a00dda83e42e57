"""Warm-up of kernels before a command starts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def warm_up(call: Callable[[], Any]) -> None:
    """Run a small sample of the work; if that compiles kernels, print one line."""
    from nearcast._jit import warm

    warm([call], progress=lambda line: print(f"nearcast: {line}", file=sys.stderr, flush=True))
