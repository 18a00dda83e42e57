"""Fixtures: a browser, the service of a city, and pages whose console must stay free of errors."""

import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from browser.city_service import CityService, subscriptions
from browser.map_page import TIMEOUT_MS

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
IGNORED = "GPU stall due to ReadPixels"  # a warning about how this browser composes pages
FLAGS = (
    "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist",  # WebGL without a graphics card
    "--disable-gpu-compositing",  # half the work without a graphics card
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
)  # fmt: skip
FEW_FRAMES = """
    window.requestAnimationFrame = (draw) => setTimeout(() => draw(performance.now()), 100);
    window.cancelAnimationFrame = clearTimeout;
"""
"""Ten frames per second are enough to test a page, and each takes long without a graphics card."""


@pytest.fixture(scope="module")
def browser():
    """Start a browser per test file: its driver keeps the event loop of the thread, and other tests need their own."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on PATH")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=TIMEOUT_MS)
    flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=found, args=flags)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    """Run the service of a city with subscriptions of all kinds and some messages."""
    service = CityService(tmp_path_factory.mktemp("city"))
    service.subscribe(*subscriptions(20))
    service.publish_city(300)
    yield service
    service.stop()


class PageOpener:
    """Opens pages and records their errors."""

    def __init__(self, browser):
        self._browser, self._contexts, self._pages = browser, {}, []
        self.errors, self.expected = [], ()

    def __call__(self, address, *, ready=True, welcome=False, **options):
        """Open the page of a service; `welcome` makes it a first visit."""
        page, host = self._context(welcome, options).new_page(), urlsplit(address).netloc
        self._pages.append(page)
        page.on("console", self._record_console)
        page.on("pageerror", lambda error: self.errors.append(f"error on the page: {error}"))
        page.on("requestfailed", self._record_failure)
        page.on("request", lambda request: self._check_host(request.url, host))
        page.goto(address)
        if ready:
            page.wait_for_selector("body[data-ready]")
        return page

    def _record_console(self, entry):
        if entry.type in ("error", "warning") and IGNORED not in entry.text:
            self.errors.append(entry.text)

    def _record_failure(self, request):
        if request.failure != "net::ERR_ABORTED":  # the test has left the page
            self.errors.append(f"failed: {request.url} {request.failure}")

    def _context(self, welcome, options):
        key = repr((welcome, options))
        if key not in self._contexts:
            defaults = {
                "viewport": {"width": 1200, "height": 720},
                "reduced_motion": "reduce",
            }  # frames are slow here
            context = self._browser.new_context(**{**defaults, **options})
            context.set_default_timeout(TIMEOUT_MS)
            context.add_init_script(FEW_FRAMES)
            if not welcome:
                context.add_init_script("localStorage.setItem('welcomed', 'yes')")
            self._contexts[key] = context
        return self._contexts[key]

    def _check_host(self, url, host):
        parts = urlsplit(url)
        if parts.scheme not in ("blob", "data") and parts.netloc != host:
            self.errors.append(f"request to another host: {url}")

    def close(self):
        for page in self._pages:
            page.close()
        self._pages = []

    def unexpected(self):
        """Return the errors since the last call that were not expected."""
        errors = [error for error in self.errors if not any(part in error for part in self.expected)]
        self.errors, self.expected = [], ()
        return errors


@pytest.fixture(scope="module")
def page_opener(browser):
    """Share the storage of the browser among the tests of a file."""
    return PageOpener(browser)


@pytest.fixture
def open_page(page_opener):
    """Open pages; errors that are not `expected` fail the test."""
    yield page_opener
    page_opener.close()
    assert page_opener.unexpected() == []


@pytest.fixture(scope="module")
def city_page(browser, city):
    """Open the page of the city once for several tests."""
    opener = PageOpener(browser)
    return opener, opener(city.address)


@pytest.fixture
def page(city_page):
    """The page of the city with its list of subscriptions; unexpected errors fail the test."""
    opener, page = city_page
    page.expect_errors = lambda *parts: setattr(opener, "expected", parts)
    yield page
    for _ in range(2):  # the second press discards changes
        if page.locator("#editor").is_visible():
            page.locator("#cancel").click()
    page.locator("#search").fill("")
    assert opener.unexpected() == []


@pytest.fixture
def screenshot():
    """Store a screenshot of a page in build/screenshots."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    return lambda page, name: page.screenshot(path=SCREENSHOTS / f"{name}.png")
