"""A browser, a city that is served, and pages that must not complain."""

import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from browser.pages import PATIENCE_MS
from browser.served_city import ServedCity, subscriptions

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
COPYING = "GPU stall due to ReadPixels"  # what the map is drawn with says of how this browser composes pages
FLAGS = (
    "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist",  # WebGL without a card
    "--disable-gpu-compositing",  # without a card that is half the work
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    """Start a browser for the tests of a file: a driver keeps its thread's event loop, and other tests have their own."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on PATH")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
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
        self._browser, self._contexts, self._pages = browser, {}, []
        self.complaints, self.expected = [], ()

    def __call__(self, address, *, ready=True, hint=False, **options):
        """Open the page of a service, as someone who has been there before unless `hint`."""
        page, host = self._context(hint, options).new_page(), urlsplit(address).netloc
        self._pages.append(page)
        page.on("console", self._note_said)
        page.on("pageerror", lambda error: self.complaints.append(f"error on the page: {error}"))
        page.on("requestfailed", self._note_failed)
        page.on("request", lambda asked: self._check_host(asked.url, host))
        page.goto(address)
        if ready:
            page.wait_for_selector("body[data-ready]")
        return page

    def _note_said(self, said):
        if said.type in ("error", "warning") and COPYING not in said.text:
            self.complaints.append(said.text)

    def _note_failed(self, asked):
        if asked.failure != "net::ERR_ABORTED":  # that is: the test has left the page
            self.complaints.append(f"failed: {asked.url} {asked.failure}")

    def _context(self, hint, options):
        key = repr((hint, options))
        if key not in self._contexts:
            usual = {
                "viewport": {"width": 1200, "height": 720},
                "reduced_motion": "reduce",
            }  # few frames, drawn slowly
            made = self._browser.new_context(**{**usual, **options})
            made.set_default_timeout(PATIENCE_MS)
            if not hint:
                made.add_init_script("localStorage.setItem('hinted', 'yes')")
            self._contexts[key] = made
        return self._contexts[key]

    def _check_host(self, url, host):
        parts = urlsplit(url)
        if parts.scheme not in ("blob", "data") and parts.netloc != host:
            self.complaints.append(f"asked elsewhere: {url}")

    def close(self):
        for page in self._pages:
            page.close()
        self._pages = []

    def unexpected(self):
        """Return what pages complained about since the last time, and was not expected."""
        complaints = [said for said in self.complaints if not any(part in said for part in self.expected)]
        self.complaints, self.expected = [], ()
        return complaints


@pytest.fixture(scope="module")
def visits(browser):
    """Visits of a file's tests share what the browser has kept."""
    return Visits(browser)


@pytest.fixture
def visit(visits):
    """Open pages; what they complain about and was not `expected` fails the test."""
    yield visits
    visits.close()
    assert visits.unexpected() == []


@pytest.fixture(scope="module")
def open_page(browser, city):
    """Open the page of the city for several tests."""
    visits = Visits(browser)
    return visits, visits(city.address)


@pytest.fixture
def page(open_page):
    """The page of the city, with its list of subscriptions; it must not complain."""
    visits, page = open_page
    page.expects = lambda *parts: setattr(visits, "expected", parts)
    yield page
    if page.locator("#editor").is_visible():
        page.locator("#cancel").click()
    page.locator("#sought").fill("")
    assert visits.unexpected() == []


@pytest.fixture
def keep():
    """Keep a picture of a page for people to look at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    return lambda page, name: page.screenshot(path=SCREENSHOTS / f"{name}.png")
