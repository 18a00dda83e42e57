"""`nearcast demo`: a made-up city, all five kinds of subscription, and what changes, live.

The whole pipeline runs: places write messages into a folder, Spark reads them there, shards match, and what changed
is read back from the folder that Spark writes. `--embedded` does the same in this process, without Spark.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nearcast.cli.arguments import amount, count, positive
from nearcast.cli.city_job import CityJob
from nearcast.cli.rehearsal import rehearse
from nearcast.cli.run import wait
from nearcast.cli.show import Show
from nearcast.cli.sparklog import interrupts, require_spark, spark_session
from nearcast.errors import require

if TYPE_CHECKING:
    from nearcast.engine import Engine
    from nearcast.model import Message, Subscription
    from nearcast.workload.city import City

NAME = "demo"
HELP = "watch a generated city: subscriptions of all five kinds, messages streaming past, updates as they happen"


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
    parser.add_argument("--embedded", action="store_true", help="in this process, without Spark")
    parser.add_argument("--master", default="local[*]", help="which Spark")
    parser.add_argument(
        "--folder", type=Path, help="keep the job here, for `nearcast run`; a passing one if not given"
    )


def run(options: argparse.Namespace) -> int:
    """Run the demo until the messages end."""
    from rich.console import Console

    from nearcast.workload.city import City

    city = City(seed=options.seed)
    subscriptions = city.subscriptions(options.subscriptions)
    show = Show(subscriptions, total=options.messages, console=Console())
    rehearse(lambda: _engine(city, city.subscriptions(10), options).publish(city.messages(3)))
    if options.embedded:
        _embedded(show, city, subscriptions, options)
    else:
        _on_spark(show, city, subscriptions, options)
    if options.picture:
        show.draw(options.picture)
    return 0


def _paced(city: City, options: argparse.Namespace) -> Iterator[Message]:
    """Yield messages no faster than the rate, if someone watches."""
    start = time.monotonic()
    for number, message in enumerate(city.messages(options.messages)):
        if options.rate and sys.stdout.isatty():
            ahead = start + number / options.rate - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
        yield message


def _engine(city: City, subscriptions: list[Subscription], options: argparse.Namespace) -> Engine:
    from nearcast import Engine, TimeWindow

    window = TimeWindow(options.window)
    engine = Engine(space=city.space, vocabulary=city.vocabulary(), window=window, social=city.social)
    engine.subscribe(subscriptions)
    return engine


# -- in this process --------------------------------------------------------------------------------------------


def _embedded(show: Show, city: City, subscriptions: list[Subscription], options: argparse.Namespace) -> None:
    engine = _engine(city, subscriptions, options)
    busy = 0.0
    with show.live():
        for message in _paced(city, options):
            show.said(message)
            before = time.perf_counter()
            updates = engine.publish([message])
            busy += time.perf_counter() - before
            for update in updates:
                show.told(update.subscription, update.message, update.change, update.score)
            show.facts = {
                "in window": f"{engine.stats().window:,}",
                "ms a message": f"{1e3 * busy / max(show.published, 1):.2f}",
            }
            show.refresh()
    show.summarise()
    topk = next((s for s in subscriptions if s.kind == "topk" and engine.results(s.id)), None)
    if topk is not None:
        best = engine.results(topk.id)[0]
        show.say(f"\nThe best for {topk.id!r} at the end is {best.message!r}, and this is why:")
        show.say(str(engine.explain(topk.id, best.message)))


# -- on Spark ---------------------------------------------------------------------------------------------------


def _on_spark(show: Show, city: City, subscriptions: list[Subscription], options: argparse.Namespace) -> None:
    require_spark()
    from nearcast.spark.follow import Follower
    from nearcast.spark.plan import read_plan
    from nearcast.spark.progress import Tally
    from nearcast.spark.run import start_run

    with _folder(options.folder) as folder:
        job = CityJob(folder, city, window_s=options.window)
        job.write(subscriptions)
        plan = read_plan(job.file)
        tally, follower = Tally(), Follower(plan.place(str(plan.updates.path)))
        log = folder / "spark.log"
        with (
            spark_session(log, shards=plan.match.shards, master=options.master) as spark,
            interrupts() as check,
            show.live(),
        ):
            started = start_run(spark, plan)

            def look() -> None:
                check()
                # First: what a batch has told is there when the batch is reported.
                tally.take(started.batches(after=tally.last_batch))
                for row in follower.rows():
                    show.told(row["subscription"], row["message"], row["change"], row["score"])
                show.facts = dict(tally.rows())
                show.refresh()

            for message in job.feed(_paced(city, options), look):
                show.said(message)
                show.refresh()
            while tally.messages < options.messages:
                wait(started, check)
                look()
            started.stop()
        show.summarise()
        if options.folder is not None:
            show.say(f"\nThe job is in {job.file}; `nearcast run {job.file}` goes on with it.")


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    """Lend a folder: one that stays, if it was given."""
    if given is None:
        with tempfile.TemporaryDirectory(prefix="nearcast-") as passing:
            yield Path(passing)
        return
    hint = f"`nearcast run {given / CityJob.NAME}` goes on with a job that is there"
    is_free = not given.exists() or (given.is_dir() and not any(given.iterdir()))
    require(is_free, "folder", "must be empty, or not there yet", str(given), hint=hint)
    yield given
