"""What has happened so far, and how does it look? Latest updates of each kind, counts, and a bar."""

from __future__ import annotations

import io
import re
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from nearcast.model import Message, Subscription

_FRAMES_PER_SECOND = 8
_SHOWN_OF_A_KIND = 3


class _Told(NamedTuple):
    subscription: Any
    message: Any
    change: str
    score: float


class Show:
    """A stream and its updates, as a picture that moves where there is a terminal."""

    def __init__(self, subscriptions: Sequence[Subscription], *, total: int, console: Console) -> None:
        self.published = 0
        self.facts: dict[str, str] = {}
        """What else there is to say, name by name."""
        self._by_id = {s.id: s for s in subscriptions}
        self._total = total
        self._console = console
        self._texts: dict[Any, str] = {}
        kinds = sorted({s.kind for s in subscriptions})
        self._latest: dict[str, deque[_Told]] = {kind: deque(maxlen=_SHOWN_OF_A_KIND) for kind in kinds}
        self._enters: Counter[str] = Counter()
        self._leaves: Counter[str] = Counter()
        self._started = self._drawn = time.monotonic()
        self._live: Live | None = None

    def said(self, message: Message) -> None:
        """Note a message."""
        self._texts[message.id] = str(message.text)
        self.published += 1

    def told(self, subscription: Any, message: Any, change: Any, score: Any) -> None:
        """Note an update."""
        kind = self._by_id[subscription].kind
        (self._enters if change == "enter" else self._leaves)[kind] += 1
        self._latest[kind].append(_Told(subscription, message, change, score))

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show what happens while it happens, if there is a terminal."""
        from rich.live import Live

        if not self._console.is_terminal:
            yield
            return
        with Live(self.picture(), console=self._console, auto_refresh=False, transient=True) as self._live:
            yield

    def refresh(self) -> None:
        """Draw anew, if it is time to."""
        if self._live is not None and time.monotonic() - self._drawn > 1 / _FRAMES_PER_SECOND:
            self._live.update(self.picture(), refresh=True)
            self._drawn = time.monotonic()

    def picture(self) -> RenderableType:
        """Draw the latest updates and the counts."""
        from rich.columns import Columns
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar

        body = Columns([self._updates(), self._counts()], expand=False)
        bar = ProgressBar(total=self._total, completed=self.published, width=60)
        return Panel(Group(body, bar), title="nearcast: a city, live", subtitle="ends by itself, Ctrl-C stops it")

    def _updates(self) -> RenderableType:
        from rich.markup import escape
        from rich.table import Table

        table = Table(title="latest updates of each kind", box=None, padding=(0, 1))
        for heading in ("", "kind", "asked for", "message", "score"):
            table.add_column(heading, no_wrap=True, justify="right" if heading == "score" else "left")
        for kind, latest in self._latest.items():
            for told in latest:
                sign = "[green]+[/]" if told.change == "enter" else "[red]-[/]"
                asked = str(getattr(self._by_id[told.subscription], "keywords", ""))
                text = self._texts.get(told.message, "")
                score = f"{told.score:,.0f} m" if kind == "nearest" else f"{told.score:.3f}"
                table.add_row(sign, kind, escape(f"{asked:32.32}"), escape(f"{text:36.36}"), score)
            for _ in range(_SHOWN_OF_A_KIND - len(latest)):
                table.add_row("", kind, "", "", "")
        return table

    def _counts(self) -> RenderableType:
        from rich.table import Table

        table = Table(title="counts", box=None, padding=(0, 1))
        for heading in ("kind", "subscribed", "enter", "leave"):
            table.add_column(heading, justify="left" if heading == "kind" else "right")
        subscribed = Counter(s.kind for s in self._by_id.values())
        for kind in self._latest:
            table.add_row(kind, f"{subscribed[kind]:,}", f"{self._enters[kind]:,}", f"{self._leaves[kind]:,}")
        table.add_section()
        elapsed = max(time.monotonic() - self._started, 1e-9)
        said = {"said": f"{self.published:,} of {self._total:,}", "said/s": f"{self.published / elapsed:,.0f}"}
        for name, value in (said | self.facts).items():
            table.add_row(name, value)
        return table

    def draw(self, path: str) -> None:
        """Write what a terminal would show to an SVG file that asks no other server for anything."""
        from rich._export_format import CONSOLE_SVG_FORMAT
        from rich.console import Console

        console = Console(record=True, width=136, file=io.StringIO(), force_terminal=True, color_system="truecolor")
        console.print(self.picture())
        alone = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.S)
        Path(path).write_text(console.export_svg(title="nearcast demo", code_format=alone))

    def say(self, text: str) -> None:
        """Say something below the picture."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def summarise(self) -> None:
        """Say what came of it."""
        self._console.print(self._counts())
