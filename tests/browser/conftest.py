"""A browser, a city that is served, and pages that must not complain."""

import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from browser.served_city import ServedCity, subscriptions

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist",  # WebGL without a card
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    """Start a browser for the tests of a file: a driver keeps its thread's event loop, and other tests have their own."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on PATH")
    from playwright.sync_api import sync_playwright

    flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=found, args=flags)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    """Serve a city with subscriptions of all kinds, where some things have been said."""
    served = ServedCity(tmp_path_factory.mktemp("city"))
    served.subscribe(*subscriptions(20))
    served.talk(300)
    yield served
    served.stop()


class Visits:
    """Opens pages, and notes what they complain about."""

    def __init__(self, browser):
        self._browser, self._contexts = browser, []
        self.complaints, self.expected = [], ()

    def __call__(self, address, *, ready=True, hint=False, **options):
        """Open the page of a service, in a browser of its own that has been here before unless `hint`."""
        context = self._browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **options})
        context.set_default_timeout(20_000)
        self._contexts.append(context)
        if not hint:
            context.add_init_script("localStorage.setItem('hinted', 'yes')")
        page, host = context.new_page(), urlsplit(address).netloc
        page.on("console", lambda said: said.type in ("error", "warning") and self.complaints.append(said.text))
        page.on("pageerror", lambda error: self.complaints.append(f"error on the page: {error}"))
        page.on("requestfailed", lambda asked: self.complaints.append(f"failed: {asked.url} {asked.failure}"))
        page.on("request", lambda asked: self._check_host(asked.url, host))
        page.goto(address)
        if ready:
            page.wait_for_selector("body[data-ready]")
        return page

    def _check_host(self, url, host):
        parts = urlsplit(url)
        if parts.scheme not in ("blob", "data") and parts.netloc != host:
            self.complaints.append(f"asked elsewhere: {url}")

    def end(self):
        complaints = [said for said in self.complaints if not any(part in said for part in self.expected)]
        for context in self._contexts:
            context.close()
        return complaints


@pytest.fixture
def visit(browser):
    """Open pages; what they complain about and was not `expected` fails the test."""
    visits = Visits(browser)
    yield visits
    assert visits.end() == []


@pytest.fixture
def keep():
    """Keep a picture of a page for people to look at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    return lambda page, name: page.screenshot(path=SCREENSHOTS / f"{name}.png")
