"""`nearcast demo`: a made-up city, all five kinds of subscription, and what changes, live."""

from __future__ import annotations

import argparse
import io
import re
import sys
import time
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.cli.arguments import amount, count, positive
from nearcast.cli.rehearsal import rehearse

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from nearcast.engine import Engine
    from nearcast.model import Message, Subscription, Update
    from nearcast.workload.city import City

NAME = "demo"
HELP = "watch a generated city: subscriptions of all five kinds, messages streaming past, updates as they happen"

_FRAMES_PER_SECOND = 8
_SHOWN_OF_A_KIND = 3


def add_options(parser: argparse.ArgumentParser) -> None:
    """Say what the demo can be told."""
    parser.add_argument("--subscriptions", type=positive, default=500, help="how many people ask for something")
    parser.add_argument("--messages", type=positive, default=1500, help="how many messages stream past")
    parser.add_argument("--rate", type=amount, default=120.0, help="messages a second; 0 means as fast as it goes")
    parser.add_argument(
        "--window", type=positive, default=300, help="seconds of the city's time that topk and social see"
    )
    parser.add_argument("--seed", type=count, default=0, help="another seed is another city")
    parser.add_argument("--picture", metavar="FILE", help="write the last frame to an SVG file")


def run(options: argparse.Namespace) -> int:
    """Run the demo until the messages end."""
    from rich.console import Console

    from nearcast import Engine, TimeWindow
    from nearcast.workload.city import City

    city = City(seed=options.seed)

    def engine_of(subscriptions: list[Subscription]) -> Engine:
        window = TimeWindow(options.window)
        made = Engine(space=city.space, vocabulary=city.vocabulary(), window=window, social=city.social)
        made.subscribe(subscriptions)
        return made

    rehearse(lambda: engine_of(city.subscriptions(10)).publish(city.messages(3)))
    subscriptions = city.subscriptions(options.subscriptions)
    engine = engine_of(subscriptions)
    show = Show(engine, subscriptions, total=options.messages)
    console = Console()
    if console.is_terminal:
        _watch(show, city, options, console)
    else:
        for message in _paced(city, options):
            show.publish(message)
    show.summarise(console)
    if options.picture:
        show.draw(options.picture)
    return 0


def _watch(show: Show, city: City, options: argparse.Namespace, console: Console) -> None:
    from rich.live import Live

    with Live(show.picture(), console=console, refresh_per_second=_FRAMES_PER_SECOND, transient=True) as live:
        drawn = time.monotonic()
        for message in _paced(city, options):
            show.publish(message)
            if time.monotonic() - drawn > 1 / _FRAMES_PER_SECOND:
                live.update(show.picture())
                drawn = time.monotonic()


def _paced(city: City, options: argparse.Namespace) -> Any:
    """Yield messages no faster than the rate."""
    start = time.monotonic()
    for number, message in enumerate(city.messages(options.messages)):
        if options.rate and sys.stdout.isatty():
            ahead = start + number / options.rate - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
        yield message


class Show:
    """What has happened so far, and how it looks."""

    def __init__(self, engine: Engine, subscriptions: list[Subscription], *, total: int) -> None:
        self._engine = engine
        self._by_id = {s.id: s for s in subscriptions}
        self._total = total
        self._texts: dict[Any, str] = {}
        self._latest: dict[str, deque[Update]] = {
            s.kind: deque(maxlen=_SHOWN_OF_A_KIND) for s in sorted(subscriptions, key=lambda s: s.kind)
        }
        self._enters: Counter[str] = Counter()
        self._leaves: Counter[str] = Counter()
        self._published = 0
        self._started = time.monotonic()
        self._busy = 0.0

    def publish(self, message: Message) -> None:
        """Hand a message to the engine and note what it changed."""
        self._texts[message.id] = str(message.text)
        before = time.perf_counter()
        updates = self._engine.publish([message])
        self._busy += time.perf_counter() - before
        self._published += 1
        for update in updates:
            kind = self._by_id[update.subscription].kind
            (self._enters if update.change == "enter" else self._leaves)[kind] += 1
            self._latest[kind].append(update)

    def picture(self) -> RenderableType:
        """Draw the latest updates and the counts."""
        from rich.columns import Columns
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar

        body = Columns([self._updates(), self._counts()], expand=False)
        bar = ProgressBar(total=self._total, completed=self._published, width=60)
        return Panel(Group(body, bar), title="nearcast: a city, live", subtitle="ends by itself, Ctrl-C stops it")

    def _updates(self) -> RenderableType:
        from rich.markup import escape
        from rich.table import Table

        table = Table(title="latest updates of each kind", box=None, padding=(0, 1))
        for heading in ("", "kind", "asked for", "message", "score"):
            table.add_column(heading, no_wrap=True, justify="right" if heading == "score" else "left")
        for kind, latest in self._latest.items():
            for update in latest:
                sign = "[green]+[/]" if update.change == "enter" else "[red]-[/]"
                asked = str(getattr(self._by_id[update.subscription], "keywords", ""))
                text = self._texts.get(update.message, "")
                score = f"{update.score:,.0f} m" if kind == "nearest" else f"{update.score:.3f}"
                table.add_row(sign, kind, escape(f"{asked:32.32}"), escape(f"{text:36.36}"), score)
            for _ in range(_SHOWN_OF_A_KIND - len(latest)):
                table.add_row("", kind, "", "", "")
        return table

    def _counts(self) -> RenderableType:
        from rich.table import Table

        stats = self._engine.stats()
        table = Table(title="counts", box=None, padding=(0, 1))
        for heading in ("kind", "subscribed", "enter", "leave"):
            table.add_column(heading, justify="left" if heading == "kind" else "right")
        for kind, n in stats.kinds.items():
            table.add_row(kind, f"{n:,}", f"{self._enters[kind]:,}", f"{self._leaves[kind]:,}")
        table.add_section()
        elapsed = max(time.monotonic() - self._started, 1e-9)
        told = sum(self._enters.values()) + sum(self._leaves.values())
        for name, value in (
            ("messages", f"{self._published:,} of {self._total:,}"),
            ("in window", f"{stats.window:,}"),
            ("messages/s", f"{self._published / elapsed:,.0f}"),
            ("updates/s", f"{told / elapsed:,.0f}"),
            ("ms a message", f"{1e3 * self._busy / max(self._published, 1):.2f}"),
        ):
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

    def summarise(self, console: Console) -> None:
        """Say what came of it."""
        console.print(self._counts())
        topk = next((s for s in self._by_id.values() if s.kind == "topk" and self._engine.results(s.id)), None)
        if topk is None:
            return
        best = self._engine.results(topk.id)[0]
        console.print(f"\nThe best for {topk.id!r} at the end is {best.message!r}, and this is why:")
        console.print(str(self._engine.explain(topk.id, best.message)), markup=False, highlight=False)
