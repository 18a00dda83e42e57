"""A self-contained HTML page: the table, the load of shards, and a map of each routing that divides space.

On a map a box has the colour of its shard, deeper for a busier one; dots are messages. Where several shards own a
box, because terms divide it further, it has the colour of the first, and its title names all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

import numpy as np

from nearcast.advice.report import COLUMNS_EXPLAINED, HEADINGS, AdviceReport
from nearcast.partition.base import ShardArea
from nearcast.partition.estimate import Estimate
from nearcast.space import Box

_WIDTH = 420.0  # width of a map
_TALLEST, _FLATTEST = 420.0, 140.0
_MAX_DOTS, _MAX_EDGES = 1_500, 500
_CHART = 60.0, 16.0  # width and height of a chart of loads

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2329; --soft: #5d6975; --paper: #fbfbf9; --card: #fff; --line: #d9dde1;
  --accent: #0b6e5c; --light: 46%; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #98a4af; --paper: #14181c; --card: #1c2227;
  --line: #343c44; --accent: #5cc9b1; --light: 58%; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 80rem; padding: 2rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .25rem; text-wrap: balance; }
h2 { font-size: 1.05rem; margin: 2.5rem 0 .75rem; }
p { max-width: 46rem; margin: .4rem 0; color: var(--soft); }
.advice { color: var(--ink); border-left: 3px solid var(--accent); padding: .2rem 0 .2rem .9rem; margin: 1.2rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: .35rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; } th:first-child, td:first-child { text-align: left; }
tr.taken td { font-weight: 650; } tr.taken td:first-child { color: var(--accent); }
.bars rect { fill: var(--accent); }
.maps { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 1.25rem; }
figure { margin: 0; padding: .75rem; background: var(--card); border: 1px solid var(--line); border-radius: 6px; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { font-size: .85rem; color: var(--soft); margin-top: .5rem; } figcaption b { color: var(--ink); }
.map rect { stroke: var(--card); } .dot { fill: var(--ink); fill-opacity: .28; }
"""


def page_of(report: AdviceReport) -> str:
    """Return a page that needs no other files."""
    bounds = report.stream.space.bounds
    height = float(np.clip(_WIDTH * _side(bounds, 1) / _side(bounds, 0), _FLATTEST, _TALLEST))
    drawn = [(estimate, estimate.routing.shard_areas(bounds)) for estimate in report.estimates]
    maps = [_map(estimate, regions, bounds, height) for estimate, regions in drawn if regions]
    title = escape(report.title)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Partitioners for {title}</title><style>{_STYLE}</style></head><body>",
            f"<h1>Partitioner: {escape(report.taken.name)}</h1><p>{title}</p>",
            f'<p class="advice"><b>{escape(report.taken.name)}</b>: {escape(report.reason)}.</p>',
            '<div class="scroll"><table><thead><tr><th>partitioner</th><th>busy</th>',
            *(f"<th>{escape(heading)}</th>" for heading in HEADINGS),
            "</tr></thead><tbody>",
            *_rows(report),
            "</tbody></table></div>",
            f"<p>{escape(_words(report))}</p>",
            *(_maps(report, maps, bounds, height) if maps else ()),
            "</body></html>\n",
        ]
    )


def _words(report: AdviceReport) -> str:
    check, handle, insert = report.constants
    return (
        f"Busy: the time per message of each shard; {COLUMNS_EXPLAINED}. The load counts {check:.2g} µs for "
        f"a message and a subscription, {handle:.2g} for a message and {insert:.2g} for a subscription, as measured "
        f"here. {report.costs_explained}"
    )


def _rows(report: AdviceReport) -> Iterator[str]:
    most = max(estimate.busiest_us for estimate in report.estimates)
    for estimate, (name, cells) in zip(report.estimates, report.rows(), strict=True):
        taken = ' class="taken"' if estimate is report.taken else ""
        shown = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        yield f"<tr{taken}><td>{escape(name)}</td><td>{_load_chart(estimate, most)}</td>{shown}</tr>"


def _load_chart(estimate: Estimate, most: float) -> str:
    """Draw the load of each shard, on the scale of the busiest shard of all partitioners."""
    width, height = _CHART
    step = width / len(estimate.busy_us)
    rects = "".join(
        f'<rect x="{i * step:.1f}" y="{height - tall:.1f}" width="{step * 0.85:.1f}" height="{tall:.1f}"/>'
        for i, tall in enumerate((height * estimate.busy_us / most if most else estimate.busy_us).tolist())
    )
    label = f"{escape(estimate.name)}: how busy each shard is"
    return f'<svg class="bars" role="img" aria-label="{label}" width="{width:g}" height="{height:g}">{rects}</svg>'


def _maps(report: AdviceReport, maps: list[str], bounds: Box, height: float) -> Iterator[str]:
    messages = report.stream.sample.messages
    rows = np.linspace(0, len(messages) - 1, min(len(messages), _MAX_DOTS)).astype(np.int64)
    xs, ys = messages.xs[rows], messages.ys[rows]
    dots = "".join(
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="1.2"/>'
        for x, y in zip(*_on_map(xs, ys, bounds, height), strict=True)
    )
    yield f'<svg width="0" height="0" aria-hidden="true"><defs><g id="messages">{dots}</g></defs></svg>'
    yield "<h2>Who has which part of space</h2>"
    yield "<p>A colour is a shard, the deeper the busier it is; dots are messages.</p>"
    yield f'<div class="maps">{"".join(maps)}</div>'


def _map(estimate: Estimate, regions: list[ShardArea], bounds: Box, height: float) -> str:
    busy = estimate.busy_us / (estimate.busiest_us or 1.0)
    boxes = "".join(_box(region, busy.tolist(), bounds, height) for region in joined(regions))
    name, n = escape(estimate.name), len(regions)
    edge = 0.6 if n < _MAX_EDGES else 0  # this many edges would hide the messages
    return (
        f'<figure><svg class="map" role="img" aria-label="map of {name}" viewBox="0 0 {_WIDTH:g} {height:g}" '
        f'stroke-width="{edge:g}">'
        f'{boxes}<use href="#messages"/></svg><figcaption><b>{name}</b> {n:,} {"part" if n == 1 else "parts"}, '
        f"{estimate.replication:.2f} replicas per subscription</figcaption></figure>"
    )


def _box(region: ShardArea, busy: list[float], bounds: Box, height: float) -> str:
    (x0, x1), (y1, y0) = _on_map(
        np.array([region.box[0], region.box[2]]), np.array([region.box[1], region.box[3]]), bounds, height
    )
    shards = [shard for shard in range(len(busy)) if region.shards >> shard & 1]
    depth = 0.15 + 0.6 * max(busy[shard] for shard in shards)
    hue = shards[0] * 137.508 % 360  # the golden angle: neighbours differ
    named = f"shard{'s' if len(shards) > 1 else ''} {', '.join(map(str, shards))}"
    return (
        f'<rect x="{x0:.1f}" y="{y0:.1f}" width="{x1 - x0:.1f}" height="{y1 - y0:.1f}" fill-opacity="{depth:.2f}" '
        f'style="fill: hsl({hue:.0f} 62% var(--light))"><title>{named}</title></rect>'
    )


def joined(areas: Iterable[ShardArea]) -> list[ShardArea]:
    """Return areas with adjacent ones of the same shards in a row merged.

    >>> areas = ShardArea((0, 0, 1, 1), 2), ShardArea((1, 0, 2, 1), 2), ShardArea((2, 0, 3, 1), 4)
    >>> [area.box for area in joined(areas)]
    [(0, 0, 2, 1), (2, 0, 3, 1)]
    """
    found: list[ShardArea] = []
    for area in areas:
        before = found[-1] if found else None
        if (
            before is not None
            and before.shards == area.shards
            and before.box[1::2] == area.box[1::2]
            and before.box[2] == area.box[0]
        ):
            found[-1] = ShardArea((*before.box[:2], *area.box[2:]), area.shards)
        else:
            found.append(area)
    return found


def _on_map(
    xs: np.typing.NDArray[np.float64], ys: np.typing.NDArray[np.float64], bounds: Box, height: float
) -> tuple[list[float], list[float]]:
    """Return the positions of points on a map, whose y axis points down."""
    across = (xs - bounds.xmin) / _side(bounds, 0) * _WIDTH
    down = (bounds.ymax - ys) / _side(bounds, 1) * height
    return across.tolist(), down.tolist()


def _side(bounds: Box, axis: int) -> float:
    return (bounds.ymax - bounds.ymin if axis else bounds.xmax - bounds.xmin) or 1.0
