"""Can someone draw a subscription on the map, and watch what reaches it and why?"""

import re

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

pytestmark = pytest.mark.xdist_group("browser")
CLICKS = ((700, 400), (900, 600))  # between the panels


def test_a_pin_is_dropped_words_are_typed_sliders_moved_and_what_is_said_there_arrives(visit, city, keep):
    page = visit(city.address)
    expect(page.locator("#state")).to_have_text("live")
    page.get_by_role("button", name="New subscription").click()
    page.locator("#id").fill("jazz")
    page.locator("#draw").click()
    page.mouse.click(*CLICKS[0])
    page.locator("#keywords").fill("coffee tonight")
    results = page.locator("#ranked > li")
    expect(results).to_have_count(5)
    first = page.locator("#ranked").inner_text()

    page.locator("#k").fill("8")
    expect(results).to_have_count(8)
    page.locator("#alpha").fill("1")
    expect(page.locator("#ranked")).not_to_contain_text(first.splitlines()[0])
    expect(results.first).to_contain_text("× 1.00")  # nearness alone counts now

    page.locator("#save").click()
    expect(page.locator("#list")).to_contain_text("jazz")
    saved = city.client.get("/v1/subscriptions/jazz").json()
    assert (saved["kind"], saved["keywords"], saved["k"], saved["alpha"]) == ("topk", "coffee tonight", 8, 1)

    city.say("Free coffee at the corner", saved["location"])
    expect(page.locator("#list li", has_text="jazz")).to_contain_text(re.compile(r"[1-9]\d* new"))
    keep(page, "first")
