"""Does the page get along with any service? One that restarts, that asks for tokens, with several workers, on a plane."""

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

from browser.pages import on_map, until
from browser.served_city import SHARED, WORLD, ServedCity, subscriptions
from nearcast.service.access import Caller, hash_of
from nearcast.service.config import ServiceConfig

pytestmark = pytest.mark.xdist_group("browser")
ONE = {"id": "one", "kind": "nearest", "location": [9.05, 54.1], "keywords": "lighthouse", "k": 9}


@pytest.fixture
def served(tmp_path, visits):
    """Serve worlds until the test ends, and its pages are closed."""
    running = []

    def serve(world=WORLD, **options):
        running.append(ServedCity(tmp_path / str(len(running)), world, **options))
        return running[-1]

    yield serve
    visits.close()
    for one in running:
        one.stop()


def test_a_first_visit_is_told_what_this_is_and_a_restart_loses_nothing(visit, served):
    city = served()
    page = visit(city.address, hint=True)
    expect(page.locator("#list-end")).to_contain_text("There are none yet")
    expect(page.locator("#lately-says")).to_contain_text("Nothing yet")
    page.locator("#hint").get_by_role("button", name="Drop a pin").click()
    expect(page.locator("#drawing")).to_contain_text("drop the pin")
    expect(page.locator("#results-says")).to_contain_text("Put it on the map")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.locator("#hint")).to_be_hidden()

    city.subscribe(ONE)
    city.say("The lighthouse is open", (9.05, 54.1))
    expect(page.locator("#list li")).to_have_count(1)  # the page heard of it
    city.say("The lighthouse is lit", (9.05, 54.1))
    expect(page.locator("#list .news")).to_have_text("1 new")
    visit.expected = ("net::ERR_", "status of 503")  # what a browser says of a service that is not there
    page.route("**/v1/updates/events", lambda route: route.abort())  # so that it is away for long enough
    city.stop()
    expect(page.locator("#state")).to_contain_text("connection lost, trying again")
    city.start()
    for number in range(3):
        city.say(f"The lighthouse closes, {number}", (9.05, 54.1))
    expect(page.locator("#list .news")).to_have_text("1 new")
    page.unroute_all()
    page.evaluate("dispatchEvent(new Event('online'))")
    expect(page.locator("#state")).to_have_text("live", timeout=30_000)
    expect(page.locator("#list .news")).to_have_text("4 new")
    page.reload()
    page.wait_for_selector("body[data-ready]")
    expect(page.locator("#hint")).to_be_hidden()


def test_where_tokens_are_needed_one_is_asked_for(visit, served):
    everything = Caller("ann", frozenset({"subscribe", "publish", "admin"}))
    callers = {hash_of("all"): everything, hash_of("some"): Caller("bob", frozenset({"subscribe"}))}
    city = served(callers=callers)
    visit.expected = ("status of 401", "status of 403")
    page = visit(city.address, ready=False)
    for token, answer in (("wrong", "not known"), ("all", None)):
        expect(page.locator("#state")).to_have_text("waiting for a token")
        page.get_by_label("Token").fill(token)
        page.keyboard.press("Enter")
        if answer:
            expect(page.get_by_role("alert").filter(has_text=answer)).to_be_visible()
    page.wait_for_selector("body[data-ready]")
    expect(page.locator("#state")).to_have_text("live")
    page.evaluate("sessionStorage.setItem('token', 'some')")
    page.reload()
    expect(page.locator("#state")).to_contain_text("needs a token with scope admin")
    city.client.headers["Authorization"] = "Bearer some"
    city.subscribe(ONE)
    city.client.headers["Authorization"] = "Bearer all"
    city.say("The lighthouse is open", (9.05, 54.1))
    expect(page.locator("#list li")).to_have_count(1)  # updates still come


def test_shards_are_seen_with_their_load(visit, served, keep):
    city = served(SHARED)
    city.subscribe(*subscriptions(80))
    page = visit(city.address)
    page.locator("[data-layer=shards]").check()
    legend = page.locator("#shards")
    expect(legend).to_contain_text("4 shards, shared by space_kd")
    expect(legend.locator("dl > div")).to_have_count(4)
    loads = [int(text) for text in legend.locator("dd").all_inner_texts()]
    assert loads == city.client.get("/v1/shards").json()["loads"] and sum(loads) >= 80
    until(page, "world.map.queryRenderedFeatures({ layers: ['shards'] }).length >= 4")
    assert page.locator(".shard").all_inner_texts() == ["0", "1", "2", "3"]
    keep(page, "shards")
    for layer in ("points", "density", "subscriptions", "shards"):
        page.locator(f"[data-layer={layer}]").uncheck()
    until(page, "!world.map.queryRenderedFeatures({ layers: ['shards', 'pins', 'areas'] }).length")
    expect(legend).to_be_hidden()


def test_a_plane_has_a_grid_and_no_land_and_hash_has_no_regions(visit, served, keep):
    plane = served(ServiceConfig(bounds=(-500, 0, 1500, 1000), window_count=100, workers=2))
    page = visit(plane.address)
    plane.say("coffee in the far corner", (1500, 1000))
    plane.say("coffee in the middle", (500, 500))
    until(page, "world.map.queryRenderedFeatures({ layers: ['points'] }).length === 2")
    expect(page.locator(".tick").first).to_have_text("-500")
    assert on_map(page, "world.map.querySourceFeatures('land').length") == 0
    page.get_by_role("button", name="New subscription").click()
    page.keyboard.press("Escape")
    page.locator("#centre").click()
    page.locator("#keywords").fill("coffee")
    expect(page.locator("#ranked > li")).to_have_count(2)
    expect(page.locator("#ranked > li").first).to_contain_text("in the middle")
    page.locator("#id").fill("plane")
    page.locator("#save").click()
    expect(page.locator("#delete")).to_be_visible()
    x, y = plane.client.get("/v1/subscriptions/plane").json()["location"]
    assert (x, y) == pytest.approx((500, 500), abs=2)
    page.locator("[data-layer=shards]").check()
    expect(page.locator("#shards")).to_contain_text("None has a part of the map to itself")
    expect(page.locator("#shards dl > div")).to_have_count(2)
    keep(page, "plane")
