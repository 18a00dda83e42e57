"""KEEP: sliding windows, and what each kind keeps of what was found."""

from collections.abc import Callable, Iterable

from nearcast.model import Document, Keeps
from nearcast.window.ever import Ever
from nearcast.window.forward import Forward
from nearcast.window.keeper import Found, Keeper, Kept, KeptChange
from nearcast.window.policy import CountWindow, TimeWindow, WindowPolicy
from nearcast.window.recompute import Recompute
from nearcast.window.sliding import SlidingWindow, Step, Ticks

KEEPERS: dict[Keeps, Callable[[Iterable[Document]], Keeper]] = {
    Keeps.MATCHES: lambda live: Forward(),
    Keeps.BEST_IN_WINDOW: Recompute,
    Keeps.BEST_EVER: lambda live: Ever(),
}
"""Who keeps what; each is made with the messages that are in the window."""

__all__ = [
    "KEEPERS",
    "CountWindow",
    "Found",
    "Keeper",
    "Kept",
    "KeptChange",
    "SlidingWindow",
    "Step",
    "Ticks",
    "TimeWindow",
    "WindowPolicy",
]
