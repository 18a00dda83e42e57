"""The page works with every service: one that restarts, requires tokens, has several shards, or uses a plane."""

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright, which drives the browser, is not installed")
from playwright.sync_api import expect

from browser.city_service import CONFIG, SHARDED, CityService, subscriptions
from browser.map_page import read_map, wait_map
from nearcast.service.api.access import Caller, hash_token
from nearcast.service.config import ServiceConfig

LIGHTHOUSE = {"id": "one", "kind": "nearest", "location": [9.05, 54.1], "keywords": "lighthouse", "k": 9}


@pytest.fixture
def run_service(tmp_path, page_opener):
    """Run services until the test ends and its pages are closed."""
    running = []

    def run(config=CONFIG, **options):
        running.append(CityService(tmp_path / str(len(running)), config, **options))
        return running[-1]

    yield run
    page_opener.close()
    for service in running:
        service.stop()


def test_a_first_visit_shows_the_welcome_and_a_restart_loses_no_update(open_page, run_service):
    city = run_service()
    page = open_page(city.address, welcome=True)
    expect(page.locator("#list-end")).to_contain_text("There are no subscriptions yet")
    expect(page.locator("#activity-note")).to_contain_text("No matches yet")
    page.locator("#welcome").get_by_role("button", name="Create a subscription").click()
    expect(page.locator("#drawing")).to_contain_text("drop the pin")
    expect(page.locator("#results-note")).to_contain_text("Place the subscription on the map")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.locator("#welcome")).to_be_hidden()

    city.subscribe(LIGHTHOUSE)
    city.publish("The lighthouse is open", (9.05, 54.1))
    expect(page.locator("#list li")).to_have_count(1)  # the page got an update
    city.publish("The lighthouse is lit", (9.05, 54.1))
    expect(page.locator("#list .badge")).to_have_text("2 new")
    open_page.expected = ("net::ERR_", "status of 503")  # errors of a browser without the service
    page.route("**/v1/updates/events", lambda route: route.abort())  # so that updates wait
    city.stop()
    expect(page.locator("#connection")).to_contain_text("connection lost, reconnecting")
    city.start()
    for number in range(3):
        city.publish(f"The lighthouse closes, {number}", (9.05, 54.1))
    expect(page.locator("#list .badge")).to_have_text("2 new")
    page.unroute_all()
    page.evaluate("dispatchEvent(new Event('online'))")
    expect(page.locator("#connection")).to_have_text("live", timeout=300_000)
    expect(page.locator("#list .badge")).to_have_text("5 new")
    page.reload()
    page.wait_for_selector("body[data-ready]")
    expect(page.locator("#welcome")).to_be_hidden()


def test_a_service_with_tokens_asks_for_one(open_page, run_service):
    full_access = Caller("ann", frozenset({"subscribe", "publish", "admin"}))
    callers = {hash_token("all"): full_access, hash_token("some"): Caller("bob", frozenset({"subscribe"}))}
    city = run_service(callers=callers)
    open_page.expected = ("status of 401", "status of 403")
    page = open_page(city.address, ready=False)
    for token, answer in (("wrong", "does not know"), ("all", None)):
        expect(page.locator("#connection")).to_have_text("token required")
        page.get_by_label("Token").fill(token)
        page.keyboard.press("Enter")
        if answer:
            expect(page.get_by_role("alert").filter(has_text=answer)).to_be_visible()
    page.wait_for_selector("body[data-ready]")
    expect(page.locator("#connection")).to_have_text("live")
    page.evaluate("sessionStorage.setItem('token', 'some')")
    page.reload()
    expect(page.locator("#connection")).to_contain_text("need a token with scope admin")
    city.client.headers["Authorization"] = "Bearer some"
    city.subscribe(LIGHTHOUSE)
    city.client.headers["Authorization"] = "Bearer all"
    city.publish("The lighthouse is open", (9.05, 54.1))
    expect(page.locator("#list li")).to_have_count(1)  # updates still arrive


def test_the_last_adjustment_to_the_load_is_explained(open_page, run_service):
    city = run_service(SHARDED)
    shown = city.client.get("/v1/shards").json()
    last = {
        "action": "move",
        "load_ratio_before": 3.14,
        "load_ratio_after": 1.05,
        "moved_subscriptions": 2325,
        "moved_bytes": 1,
        "steps": 4,
    }
    page = open_page(city.address)
    page.route("**/v1/shards", lambda route: route.fulfill(json={**shown, "adjustments": 2, "last_adjustment": last}))
    page.locator("[data-layer=shards]").check()
    expect(page.locator("#shards .adjustment")).to_have_text(
        "Adjusted to the load 2 times. The last time the busiest shard did 3.1 times the work of the idlest one. "
        "2,325 subscriptions moved, which makes it 1.1 times."
    )


@pytest.mark.parametrize(
    ("action", "shown"),
    [
        ("refit", "Now a fresh routing takes new subscriptions, and older ones stay where they are."),
        ("retire", "The last time an old routing retired, and 1 subscription moved."),
    ],
)
def test_a_fresh_routing_is_explained(action, shown, open_page, run_service):
    city = run_service(SHARDED)
    shards = city.client.get("/v1/shards").json()
    last = {"action": action, "load_ratio_before": 3.14, "load_ratio_after": 1.05, "moved_subscriptions": 1}
    page = open_page(city.address)
    page.route(
        "**/v1/shards", lambda route: route.fulfill(json={**shards, "adjustments": 1, "last_adjustment": last})
    )
    page.locator("[data-layer=shards]").check()
    expect(page.locator("#shards .adjustment")).to_have_text(f"Adjusted to the load once. {shown}")


def test_shards_are_shown_with_their_load(open_page, run_service, screenshot):
    city = run_service(SHARDED)
    city.subscribe(*subscriptions(80))
    page = open_page(city.address)
    page.locator("[data-layer=shards]").check()
    legend = page.locator("#shards")
    expect(legend).to_contain_text("4 shards, partitioned by space_kd")
    expect(legend.locator("dl > div")).to_have_count(4)
    loads = [int(text) for text in legend.locator("dd").all_inner_texts()]
    assert loads == city.client.get("/v1/shards").json()["loads"] and sum(loads) >= 80
    wait_map(page, "map.map.queryRenderedFeatures({ layers: ['shards'] }).length >= 4")
    assert page.locator(".shard").all_inner_texts() == ["0", "1", "2", "3"]
    screenshot(page, "shards")
    for layer in ("points", "density", "subscriptions", "shards"):
        page.locator(f"[data-layer={layer}]").uncheck()
    wait_map(page, "!map.map.queryRenderedFeatures({ layers: ['shards', 'pins', 'areas'] }).length")
    expect(legend).to_be_hidden()


def test_a_plane_has_a_grid_and_hash_has_no_regions(open_page, run_service, screenshot):
    plane = run_service(ServiceConfig(bounds=(-500, 0, 1500, 1000), window_count=100, workers=2))
    page = open_page(plane.address)
    plane.publish("coffee in the far corner", (1500, 1000))
    plane.publish("coffee in the middle", (500, 500))
    wait_map(page, "map.map.queryRenderedFeatures({ layers: ['points'] }).length === 2")
    expect(page.locator(".tick").first).to_have_text("-500")
    assert read_map(page, "map.map.querySourceFeatures('land').length") == 0
    page.get_by_role("button", name="New subscription").click()
    page.keyboard.press("Escape")
    page.locator("#use-centre").click()
    page.locator("#keywords").fill("coffee")
    expect(page.locator("#result-list > li")).to_have_count(2)
    expect(page.locator("#result-list > li").first).to_contain_text("in the middle")
    page.locator("#id").fill("plane")
    page.locator("#save").click()
    expect(page.locator("#delete")).to_be_visible()
    x, y = plane.client.get("/v1/subscriptions/plane").json()["location"]
    assert (x, y) == pytest.approx((500, 500), abs=2)
    page.locator("[data-layer=shards]").check()
    expect(page.locator("#shards")).to_contain_text("does not divide the map")
    expect(page.locator("#shards dl > div")).to_have_count(1)  # threads that share it
    screenshot(page, "plane")
