"""How does the made-up city become a job that Spark can run? As a folder with a job file and what it speaks of."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.model.columns import SUBSCRIPTIONS, subscription_to_row
from nearcast.model.moment import to_us
from nearcast.text import tokenize

if TYPE_CHECKING:
    from nearcast.model import Message, Subscription
    from nearcast.workload.city import City

_JOB = """# A made-up city. `nearcast run {name}` runs it.
[space]
bounds = [{bounds}]
metric = "{metric}"
max_distance = {max_distance}

[vocabulary]
file = "vocabulary.json"

[window]
seconds = {window_s}

[social]
file = "friends.csv"

[match]
shards = 2

[messages]
format = "json"
path = "messages"

[subscriptions]
format = "json"
path = "subscriptions"

[updates]
format = "json"
path = "updates"

[run]
checkpoint = "checkpoint"
trigger = "200 milliseconds"
"""
_MESSAGES_A_FILE = 60


class CityJob:
    """A folder with a job."""

    NAME = "city.toml"

    def __init__(self, folder: Path, city: City, *, window_s: float) -> None:
        self.file = folder / self.NAME
        self._folder, self._city, self._window_s = folder, city, window_s
        self._n_files = 0

    def write(self, subscriptions: Iterable[Subscription]) -> None:
        """Write everything but the messages."""
        for name in ("messages", "subscriptions"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        space = self._city.space
        self.file.write_text(
            _JOB.format(
                name=self.file.name,
                bounds=", ".join(map(repr, space.bounds.as_tuple())),
                metric=space.metric,
                max_distance=space.max_distance,
                window_s=self._window_s,
            )
        )
        texts = [set(tokenize(message.text)) for message in self._city.messages(500)]
        counted = {term: sum(term in text for text in texts) for term in sorted(set().union(*texts))}
        vocabulary = {"documents": len(texts), "frequencies": counted}
        (self._folder / "vocabulary.json").write_text(json.dumps(vocabulary))
        with (self._folder / "friends.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("user", "place"), *self._city.social.edges()])
        self._put("subscriptions/all.json", [_row_of(subscription) for subscription in subscriptions])

    def feed(self, messages: Iterable[Message], look: Callable[[], None]) -> Iterator[Message]:
        """Write messages into the folder that the job reads, a file of some at a time, and look after each."""
        some: list[Message] = []
        for message in messages:
            some.append(message)
            yield message
            if len(some) == _MESSAGES_A_FILE:
                self._write_messages(some)
                some = []
                look()
        if some:
            self._write_messages(some)

    def _write_messages(self, messages: Iterable[Message]) -> None:
        rows = [
            {"id": m.id, "x": m.location[0], "y": m.location[1], "text": m.text, "at": _spelled(m), "place": m.place}
            for m in messages
        ]
        self._put(f"messages/{self._n_files:06d}.json", rows)
        self._n_files += 1

    def _put(self, name: str, rows: Iterable[dict[str, Any]]) -> None:
        """Write a file of JSON lines; it is there as a whole or not at all."""
        target = self._folder / name
        beside = target.with_name(f".{target.name}")
        beside.write_text("".join(json.dumps(row) + "\n" for row in rows))
        beside.rename(target)


def _row_of(subscription: Subscription) -> dict[str, object]:
    row = subscription_to_row(subscription)
    return {"op": "subscribe"} | {name: row[name] for name in SUBSCRIPTIONS.names if name in row}


def _spelled(message: Message) -> str:
    from datetime import UTC, datetime, timedelta

    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=to_us(message.at))).isoformat()
