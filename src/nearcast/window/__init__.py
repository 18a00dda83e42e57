"""KEEP: sliding windows, and what each kind keeps of what was found."""

from collections.abc import Callable, Iterable

from nearcast.model import Document, Keeps
from nearcast.window.ever import Ever
from nearcast.window.forward import Forward
from nearcast.window.keeper import Changes, Find, Keeper, Kept, Results
from nearcast.window.policy import CountWindow, TimeWindow, WindowPolicy
from nearcast.window.recompute import Recompute
from nearcast.window.sliding import SlidingWindow, Steps, Ticks
from nearcast.window.store import LIVE

KEEPERS: dict[Keeps, Callable[[Iterable[Document]], Keeper]] = {
    Keeps.MATCHES: lambda live: Forward(),
    Keeps.BEST_IN_WINDOW: Recompute,
    Keeps.BEST_EVER: lambda live: Ever(),
}
"""Who keeps what; each is made with the messages that are in the window."""

__all__ = [
    "KEEPERS",
    "LIVE",
    "Changes",
    "CountWindow",
    "Find",
    "Keeper",
    "Kept",
    "Results",
    "SlidingWindow",
    "Steps",
    "Ticks",
    "TimeWindow",
    "WindowPolicy",
]
