"""What does the live map look like? The demo with a subscription made as people do, as map.png and map-dark.png.

    python tools/screenshot.py docs

Everything shown follows from the seed but for the moment of the picture. It needs Chromium, and Pillow to make the
files small.
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
WORDS, CORNER = "coffee brunch", (0.46, 0.55)  # about what, and where of the map's width and height
TALKS = 250  # messages that are said before the picture
FLAGS = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist", "--no-first-run")


@contextmanager
def demo() -> Iterator[str]:
    """Run the demo, and lend the address of its map."""
    words = ["demo", "--embedded", "--port", "0", "--seed", SEED, "--subscriptions", SUBSCRIPTIONS, "--rate", RATE]
    command = [sys.executable, "-m", "nearcast.cli", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield next(line.partition(" at ")[2].split()[0] for line in running.stdout if "on the map" in line)
        finally:
            running.send_signal(signal.SIGINT)
            running.stdout.read()


def draw(page: Page, address: str) -> None:
    """Do what someone does who comes to the map: drop a pin, type words, save."""
    page.add_init_script("localStorage.setItem('hinted', 'yes')")
    page.goto(address)
    page.wait_for_selector("body[data-ready]")
    said = "async (n) => { const { world } = document.getElementById('map');"
    page.evaluate(f"{said} while (world.messages.size < n) await new Promise(requestAnimationFrame); }}", TALKS)
    page.get_by_role("button", name="New subscription").click()
    page.mouse.click(CORNER[0] * SIZE["width"], CORNER[1] * SIZE["height"])
    page.locator("#keywords").fill(WORDS)
    page.locator("#id").fill("tonight")
    page.locator("#save").click()
    expect(page.locator("#results-title")).to_contain_text("Its result now")


def picture(page: Page, theme: str) -> bytes:
    """Take the picture at a moment when something reaches someone."""
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    busy = "world.motion.alive.filter((one) => one.is === 'thread' && performance.now() - one.born > 300).length > 2"
    page.evaluate(
        f"async () => {{ const {{ world }} = document.getElementById('map');"
        f" while (!({busy})) await new Promise(requestAnimationFrame); }}"
    )
    return page.screenshot()


def main(folder: str) -> None:
    """Write both pictures."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with demo() as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=flags)
        page = browser.new_page(viewport=SIZE, color_scheme="light")  # type: ignore[arg-type]
        draw(page, address)
        for theme, name in (("light", "map"), ("dark", "map-dark")):
            taken = Image.open(io.BytesIO(picture(page, theme))).convert("RGB")
            taken.save(Path(folder) / f"{name}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
