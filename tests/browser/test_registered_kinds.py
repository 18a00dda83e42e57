"""The form of the map offers a registered kind with its sliders."""

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright, which drives the browser, is not installed")
from playwright.sync_api import expect

from browser.city_service import CityService
from extension import plugin
from nearcast.model import kind_registry
from nearcast.partition import registry as partitioner_registry


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    """Run a service of a city that knows the kind `latest`."""
    plugin.register()
    service = CityService(tmp_path_factory.mktemp("latest"))
    service.publish_city(100)
    yield service
    service.stop()
    kind_registry._REGISTERED.pop("latest", None)
    partitioner_registry._REGISTERED.pop("reversed", None)


def test_the_form_shows_the_kind_and_saves_a_subscription(page, city):
    page.get_by_role("button", name="New subscription").click()
    page.locator("#kinds").get_by_text("Latest nearby", exact=True).click()
    page.mouse.click(480, 250)
    expect(page.locator("#field-radius")).to_be_visible()
    expect(page.locator("#field-alpha")).to_be_hidden()
    page.locator("#field-radius").fill("900")
    page.locator("#keywords").fill("coffee")
    page.locator("#id").fill("newest")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#id")).to_have_attribute("readonly", "")
    saved = city.client.get("/v1/subscriptions/newest").json()
    assert (saved["kind"], saved["radius"], saved["k"]) == ("latest", 900, 5)
