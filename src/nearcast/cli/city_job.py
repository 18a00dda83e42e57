"""The generated city as a job for Spark: a folder with a job file, a vocabulary and a social graph."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

from nearcast.text import tokenize

if TYPE_CHECKING:
    from nearcast.workload.city import City

NAME = "city.toml"

_JOB = """# A made-up city. `nearcast run {name}` runs it, `nearcast serve --spark {name} --data DIR` serves it.
[space]
bounds = [{bounds}]
metric = "{metric}"
max_distance = {max_distance}

[vocabulary]
file = "vocabulary.json"

[window]
seconds = {window_s}

[social]
file = "visits.csv"

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


def write_job(folder: Path, city: City, *, window_s: float) -> Path:
    """Write a job for a city into a folder, without subscriptions and messages; return the job file."""
    folder.mkdir(parents=True, exist_ok=True)
    file, space = folder / NAME, city.space
    file.write_text(
        _JOB.format(
            name=NAME,
            bounds=", ".join(map(repr, space.bounds.as_tuple())),
            metric=space.metric,
            max_distance=space.max_distance,
            window_s=window_s,
        )
    )
    texts = [set(tokenize(message.text)) for message in city.messages(500)]
    counted = {term: sum(term in text for text in texts) for term in sorted(set().union(*texts))}
    (folder / "vocabulary.json").write_text(json.dumps({"documents": len(texts), "frequencies": counted}))
    with (folder / "visits.csv").open("w", newline="") as edges:
        csv.writer(edges).writerows([("user", "place"), *city.social.edges()])
    return file
