"""Take screenshots of the live map, map.png and map-dark.png: the demo with a subscription that is created here.

    python tools/screenshot.py docs

The content follows from the seed, except for the moment of the screenshot. Needs Chromium, and Pillow to compress the
files.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

SIZE = {"width": 1600, "height": 1000}
SEED, SUBSCRIPTIONS, RATE = 3, 16, 6
KEYWORDS, PIN = "coffee brunch", (0.46, 0.55)  # the pin as shares of the page's width and height
N_MESSAGES = 250  # on the map before the screenshot
FLAGS = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist", "--no-first-run")


@contextmanager
def demo() -> Iterator[str]:
    """Run the demo and lend the address of its map."""
    arguments = [
        "demo",
        "--embedded",
        "--port",
        "0",
        "--seed",
        SEED,
        "--subscriptions",
        SUBSCRIPTIONS,
        "--rate",
        RATE,
    ]
    command = [sys.executable, "-m", "nearcast.cli", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield next(line.partition(" is at ")[2].split()[0] for line in running.stdout if " map is at " in line)
        finally:
            running.send_signal(signal.SIGINT)
            running.stdout.read()


def create_subscription(page: Page, address: str) -> None:
    """Drop a pin, type words, and save."""
    page.add_init_script("localStorage.setItem('welcomed', 'yes')")
    page.goto(address)
    page.wait_for_selector("body[data-ready]")
    start = "async (n) => { const { liveMap: map } = document.getElementById('map');"
    page.evaluate(f"{start} while (map.messages.size < n) await new Promise(requestAnimationFrame); }}", N_MESSAGES)
    page.get_by_role("button", name="New subscription").click()
    page.mouse.click(PIN[0] * SIZE["width"], PIN[1] * SIZE["height"])
    page.locator("#keywords").fill(KEYWORDS)
    page.locator("#id").fill("tonight")
    page.locator("#save").click()
    expect(page.locator("#results-title")).to_contain_text("Current result")


def take_screenshot(page: Page, theme: str) -> bytes:
    """Take a screenshot while several threads are shown."""
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    is_busy = (
        "map.animations.active.filter("
        "({ type, startedAt }) => type === 'thread' && performance.now() - startedAt > 300).length > 2"
    )
    page.evaluate(
        f"async () => {{ const {{ liveMap: map }} = document.getElementById('map');"
        f" while (!({is_busy})) await new Promise(requestAnimationFrame); }}"
    )
    return page.screenshot()


def main(folder: str) -> None:
    """Write both screenshots."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with demo() as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=flags)
        page = browser.new_page(viewport=SIZE, color_scheme="light")  # type: ignore[arg-type]
        create_subscription(page, address)
        for theme, name in (("light", "map"), ("dark", "map-dark")):
            image = Image.open(io.BytesIO(take_screenshot(page, theme))).convert("RGB")
            image.save(Path(folder) / f"{name}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
