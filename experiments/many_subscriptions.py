"""How long the service takes to show many subscriptions: pages, searches, views of the map, one subscription.

    python -m experiments.many_subscriptions [--subscriptions 100000 --messages 500 --browser --json]

It starts `nearcast serve` for the city of the demo on a temporary folder (or takes `--url`), loads subscriptions of
all kinds through the API, publishes messages, and sends each request `--repeats` times, one after another. With
`--browser` it also opens the map in a browser. Unknown options are passed to `nearcast serve`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import time
from collections.abc import Iterator
from itertools import islice
from statistics import median
from typing import Any
from urllib.parse import quote

from experiments.question import report_progress
from experiments.service_load import service
from experiments.service_wire import Requester, request, requester
from nearcast.workload.city import BOUNDS, City

CITY = City(seed=1)
_AT_ONCE = 2_000  # subscriptions per request
_MESSAGES_AT_ONCE = 50  # each matches thousands of subscriptions
_ZOOMS = (1, 4, 16, 64, 256)
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_TIMED = """async ([action, until]) => {
    const began = performance.now();
    (0, eval)(action);
    while (!(0, eval)(until)) await new Promise((resume) => setTimeout(resume, 5));
    return performance.now() - began;
}"""
"""Acts and waits in the page, without the driver's own checks, which wait for frames."""
_FEW_FRAMES = "window.requestAnimationFrame = (draw) => setTimeout(() => draw(performance.now()), 100);"
"""Frames without a graphics card would take all of a core."""
_FLAGS = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist", "--no-first-run")


async def wait_until_ready(line: Requester) -> None:
    """Wait until the service answers; it compiles kernels first."""
    while True:
        try:
            if b"true" in await line.ask(request("GET", "/health/ready")):
                return
        except RuntimeError:  # not yet
            pass
        await asyncio.sleep(0.1)


def batches(bodies: Iterator[dict[str, Any]], at_once: int) -> Iterator[bytes]:
    """Return lists of bodies as JSON."""
    while batch := list(islice(bodies, at_once)):
        yield json.dumps(batch).encode()


async def load(url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Subscribe and publish; return how long that took."""
    found = {}
    subscriptions = (one.to_json() for one in CITY.subscriptions(options.subscriptions))
    messages = (
        {"id": one.id, "location": list(one.location), "text": one.text, "place": one.place}
        for one in CITY.messages(options.messages)
    )
    for path, bodies, at_once in (
        ("/v1/subscriptions", subscriptions, _AT_ONCE),
        ("/v1/messages", messages, _MESSAGES_AT_ONCE),
    ):
        sent = list(batches(bodies, at_once))
        line, began = await requester(url), time.monotonic()  # the service closes connections that are idle
        for body in sent:
            await line.ask(request("POST", path, body))
        found[f"load{path}_s"] = round(time.monotonic() - began, 1)
        report_progress(f"loaded {path} in {found[f'load{path}_s']} s")
    return found


def views() -> dict[str, str]:
    """Return parts of the city around its centre, each a fraction of its sides."""
    x, y = (BOUNDS.xmin + BOUNDS.xmax) / 2, (BOUNDS.ymin + BOUNDS.ymax) / 2
    width, height = BOUNDS.xmax - BOUNDS.xmin, BOUNDS.ymax - BOUNDS.ymin
    shapes = {zoom: (width / zoom / 2, height / zoom / 2) for zoom in _ZOOMS}
    return {f"1/{zoom}": f"{x - a},{y - b},{x + a},{y + b}" for zoom, (a, b) in shapes.items()}


async def paths(line: Requester) -> dict[str, str]:
    """Return what is asked, by name."""
    first = json.loads(await line.ask(request("GET", "/v1/subscriptions?limit=1000")))
    found = {
        "first page": "/v1/subscriptions?limit=60",
        "later page": f"/v1/subscriptions?limit=60&cursor={quote(first['next'])}",
        "search: jazz": "/v1/subscriptions?limit=60&search=jazz",
        "search: nothing found": "/v1/subscriptions?limit=60&search=xyzzy",
        "kind: topk": "/v1/subscriptions?limit=60&kind=topk",
    }
    for name, box in views().items():
        found[f"list in view {name}"] = f"/v1/subscriptions?limit=60&within={box}"
        found[f"clusters of view {name}"] = f"/v1/clusters?within={box}"
    found["clusters of a search"] = f"/v1/clusters?within={views()['1/1']}&search=jazz"
    one_of_each = {one["kind"]: one["id"] for one in first["subscriptions"]}
    for kind, id_ in sorted(one_of_each.items()):
        found[f"one {kind}"] = f"/v1/subscriptions/{quote(id_)}"
        found[f"results of one {kind}"] = f"/v1/subscriptions/{quote(id_)}/results?limit=100&parts=true"
    return found


async def time_requests(line: Requester, repeats: int) -> list[dict[str, Any]]:
    """Send each request some times; return the first, the median and the longest time."""
    rows = []
    for name, path in (await paths(line)).items():
        took = []
        for _ in range(repeats):
            began = time.monotonic()
            answer = await line.ask(request("GET", path))
            took.append(1e3 * (time.monotonic() - began))
        times = {"first_ms": took[0], "median_ms": median(took), "longest_ms": max(took)}
        rows.append({"request": name, **{key: round(ms, 1) for key, ms in times.items()}, "bytes": len(answer)})
        report_progress(f"{name:32} median {median(took):7.1f} ms, longest {max(took):7.1f} ms, {len(answer)} bytes")
    return rows


def time_page(url: str) -> dict[str, Any]:
    """Open the map, search, and open one subscription; return how long each took and how many requests it sent."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        raise SystemExit(f"no browser: none of {', '.join(_BROWSERS)} is on PATH")
    flags = [*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    rows: dict[str, Any] = {}
    with sync_playwright() as driver, driver.chromium.launch(executable_path=found, args=flags) as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 720}, reduced_motion="reduce", bypass_csp=True)
        page.set_default_timeout(120_000)
        page.add_init_script(_FEW_FRAMES)
        page.add_init_script("localStorage.setItem('welcomed', 'yes')")
        requested: list[str] = []
        page.on("request", lambda sent: requested.append(sent.url) if "/v1/" in sent.url else None)

        def step(name: str, action: str, until: str) -> None:
            requested.clear()
            ms = page.evaluate(_TIMED, [action, until])
            rows[name] = {"ms": round(ms), "requests": len(requested)}
            report_progress(f"{name}: {rows[name]}")

        began = time.monotonic()
        page.goto(url, wait_until="commit")
        page.wait_for_selector("#list li")
        rows["page with its list"] = {"ms": round(1e3 * (time.monotonic() - began)), "requests": len(requested)}
        report_progress(f"page with its list: {rows['page with its list']}")
        page.wait_for_selector("body[data-ready]")
        page.wait_for_selector(".cluster")
        box = "document.querySelector('#search')"
        search = f"{box}.value = 'jazz'; {box}.dispatchEvent(new Event('input', {{bubbles: true}}));"
        step("search in the list", search, "document.querySelector('#count').textContent.includes(' of ')")
        opened = "document.querySelector('#editor').checkVisibility()"
        shown = "document.querySelector('#result-list').childElementCount > 0"
        step("open one", "document.querySelector('#list li').click();", f"{opened} && {shown}")
    return rows


async def measure(url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Load, then time requests."""
    await wait_until_ready(await requester(url))
    found: dict[str, Any] = {"subscriptions": options.subscriptions, "messages": options.messages}
    found |= await load(url, options)
    found["load_average"] = round(os.getloadavg()[0], 2)
    found["requests"] = await time_requests(await requester(url), options.repeats)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.many_subscriptions", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--url", help="a running service of the city; by default one is started")
    parser.add_argument("--subscriptions", type=int, default=100_000)
    parser.add_argument("--messages", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--browser", action="store_true", help="also time the map in a browser")
    parser.add_argument("--json", action="store_true", help="print one object")
    options, words = parser.parse_known_args()

    def run(url: str) -> dict[str, Any]:
        found = asyncio.run(measure(url, options))
        return found | {"page": time_page(url)} if options.browser else found

    if options.url is not None:
        found = run(options.url)
    else:
        with service(words, space=("--city", str(CITY.seed))) as (url, _):
            found = run(url)
    print(json.dumps(found, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
