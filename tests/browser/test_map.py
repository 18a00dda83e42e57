"""Can someone draw a subscription on the map, and watch what reaches it and why?"""

import re

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

from browser.pages import on_map, until
from browser.served_city import CITY, subscriptions
from nearcast.space import Space

pytestmark = pytest.mark.xdist_group("browser")

HERE, THERE = (480, 250), (700, 460)  # on the map, between the cards


def draft_of(page):
    """Return what is drawn of the subscription at hand, by what it is."""
    drawn = on_map(page, "world.features.draft")
    return {one["properties"]["is"]: one["geometry"]["coordinates"] for one in drawn}


def radius_of(page):
    """Return how far the circle reaches from its pin."""
    draft, space = draft_of(page), Space(CITY.space.bounds, metric="haversine", max_distance=1.0)
    return None if "circle" not in draft else space.distance(tuple(draft["pin"]), tuple(draft["circle"][0][0]))


def slide(page, name, value):
    page.locator(f"#{name}").fill(str(value))


def begin(page, kind, words, *, name, at=HERE):
    page.get_by_role("button", name="New subscription").click()
    page.locator("#kinds").get_by_text(kind, exact=True).click()
    page.mouse.click(*at)
    page.locator("#keywords").fill(words)
    page.locator("#id").fill(name)


def test_messages_appear_and_figures_move(page, city, keep):
    expect(page.locator("#state")).to_have_text("live")
    expect(page.locator("#count")).to_have_text(re.compile(r"\d+"))
    expect(page.locator("[data-of=visited_per_message] dd")).to_have_text("–")  # nothing was said yet
    city.talk(60)
    until(page, "world.messages.size >= 60 && world.map.queryRenderedFeatures({ layers: ['points'] }).length")
    expect(page.locator("[data-of=messages_per_second] dd")).not_to_have_text("–")
    expect(page.locator("#told li").first).to_contain_text("reaches")
    keep(page, "city-light")


def test_a_pin_is_dropped_words_are_typed_sliders_moved_and_what_is_said_there_arrives(page, city, keep):
    begin(page, "The best", "coffee tonight", name="evening")
    results = page.locator("#ranked > li")
    expect(results).to_have_count(5)
    expect(page.locator("#results-title")).to_contain_text("Would reach it now")
    before = results.first.inner_text()
    slide(page, "k", 8)
    expect(results).to_have_count(8)
    slide(page, "alpha", 1)
    expect(results.first).to_contain_text("× 1.00")  # nearness alone counts now
    assert results.first.inner_text() != before
    farthest = radius_of(page)
    slide(page, "k", 1)
    expect(results).to_have_count(1)
    assert radius_of(page) < farthest
    slide(page, "alpha", 0.5)

    page.locator("#save").click()
    expect(page.locator("#results-title")).to_contain_text("Its result now")
    saved = city.client.get("/v1/subscriptions/evening").json()
    assert (saved["kind"], saved["keywords"], saved["k"], saved["alpha"]) == ("topk", "coffee tonight", 1, 0.5)

    city.say("Coffee tonight, right here", saved["location"])
    until(page, "world.motion.alive.some((one) => one.isPicked)")  # a thread leads there
    expect(results.first).to_contain_text("right here")
    expect(results.first).to_contain_text("0 m away")
    keep(page, "results-light")


def test_results_change_while_a_slider_is_still_moving(page):
    begin(page, "The best", "coffee tonight", name="moving")
    expect(page.locator("#ranked > li")).to_have_count(5)
    until(
        page,
        """(() => {
        const alpha = document.getElementById('alpha'), k = document.getElementById('k');
        alpha.value = Number(alpha.value) > 0.5 ? 0.1 : 0.9;
        k.value = 9;
        alpha.dispatchEvent(new Event('input', { bubbles: true }));  // at every frame: it never rests
        return document.querySelectorAll('#ranked > li').length === 9;
    })()""",
    )


def test_the_parts_of_a_score_add_up_to_it(page, city):
    begin(page, "The best", "jazz concert", name="parts")
    page.locator("#save").click()
    expect(page.locator("#results-title")).to_contain_text("Its result now")
    rows = page.locator("#ranked > li")
    expect(rows).to_have_count(5)
    expect(rows.first.get_by_role("meter")).to_have_count(2)
    for row in rows.all():
        parts = [sum_.split(" × ") for sum_ in row.locator(".sum").all_inner_texts()]
        score = sum(float(value) * float(weight) for value, weight in parts)
        assert score == pytest.approx(float(row.locator(".score").inner_text()), abs=0.02)


def test_a_message_that_is_clicked_says_how_it_fares(page, city):
    begin(page, "The best", "vintage records", name="fares")
    page.locator("#save").click()
    expect(page.locator("#results-title")).to_contain_text("Its result now")
    corner = city.client.get("/v1/subscriptions/fares").json()["location"][0], CITY.space.bounds.ymax
    for text, verdict in (("Vintage records, far up", "result."), ("Nothing of the kind", "Not in the result.")):
        name = city.say(text, corner)
        until(page, f"world.messages.has('{name}') && world.map.loaded()")
        until(
            page,
            f"world.map.queryRenderedFeatures({{ layers: ['points'] }}).some((one) => one.properties.id === '{name}')",
        )
        where, inset = on_map(page, f"world.map.project({list(corner)})"), page.locator("#map").bounding_box()
        page.mouse.click(inset["x"] + where["x"], inset["y"] + where["y"])
        expect(page.locator(".maplibregl-popup")).to_contain_text(verdict)
    expect(page.locator(".maplibregl-popup")).to_contain_text("no term is shared")


def test_a_box_is_dragged_or_clicked_and_passes_on_what_is_said_inside(page, city):
    page.get_by_role("button", name="New subscription").click()
    page.locator("#kinds").get_by_text("In a box").click()
    page.mouse.move(*HERE)
    page.mouse.down()
    page.mouse.move(600, 380)
    assert "area" in draft_of(page)
    page.mouse.move(*THERE)
    page.mouse.up()
    dragged = draft_of(page)["area"]
    page.locator("#draw").click()
    page.mouse.click(*THERE)
    page.mouse.click(*HERE)
    assert draft_of(page)["area"] == dragged
    page.locator("#keywords").fill("oysters AND (sale OR free)")
    page.locator("#id").fill("harbour")
    page.locator("#save").click()
    expect(page.locator("#delete")).to_be_visible()
    xmin, ymin, xmax, ymax = city.client.get("/v1/subscriptions/harbour").json()["region"]
    city.say("Oysters for a sale, in the middle", ((xmin + xmax) / 2, (ymin + ymax) / 2))
    city.say("Oysters for a sale, elsewhere", (CITY.space.bounds.xmin, ymin))
    expect(page.locator("#ranked")).to_contain_text("in the middle")
    expect(page.locator("#ranked")).not_to_contain_text("elsewhere")


def test_a_rule_that_is_broken_is_named(page, city):
    page.expects("status of 422")
    page.get_by_role("button", name="New subscription").click()
    page.locator("#kinds").get_by_text("In a box").click()
    page.locator("#centre").click()
    page.locator("#keywords").fill("coffee AND (")
    expect(page.get_by_role("alert").filter(has_text="keywords")).to_be_visible()
    page.locator("#keywords").fill("coffee")
    expect(page.locator("#fault")).to_be_empty()


def test_the_circle_of_a_threshold_is_how_far_all_words_reach(page, city):
    begin(page, "Near and alike", "ramen", name="alike")
    for delta, tau in ((0.5, 0.9), (0.2, 0.7)):
        slide(page, "delta", delta)
        slide(page, "tau", tau)
        assert radius_of(page) == pytest.approx((1 - (tau - delta) / (1 - delta)) * CITY.space.max_distance, rel=1e-6)
    slide(page, "delta", 0.8)
    assert radius_of(page) is None  # the words suffice wherever they are said


def test_friends_count_for_who_is_chosen(page, city):
    begin(page, "With friends", "brunch", name="friends")
    expect(page.locator("#people option")).to_have_count(CITY.n_people)
    page.locator("#user").fill("u7")
    expect(page.locator("#ranked > li").first).to_contain_text("friends")
    page.locator("#save").click()
    expect(page.locator("#results-title")).to_contain_text("Its result now")
    assert city.client.get("/v1/subscriptions/friends").json()["user"] == "u7"


def test_a_pin_on_the_map_opens_its_subscription_which_is_changed_and_deleted(page, city):
    was = city.client.get("/v1/subscriptions/s8").json()
    there = f"world.map.queryRenderedFeatures(world.map.project({was['location']}), {{ layers: ['pins'] }})"
    until(page, f"!world.map.isMoving() && {there}.some((pin) => pin.properties.id === 's8')")
    where = on_map(page, f"world.map.project({was['location']})")
    inset = page.locator("#map").bounding_box()
    page.mouse.click(inset["x"] + where["x"], inset["y"] + where["y"])
    expect(page.locator("#editor-title")).to_have_text(was["keywords"])
    expect(page.locator("#save")).to_be_disabled()
    page.locator("#keywords").fill("cheese bread")
    slide(page, "k", 4)
    page.locator("#save").click()
    expect(page.locator("#editor-title")).to_have_text("cheese bread")
    assert city.client.get("/v1/subscriptions/s8").json() == {**was, "keywords": "cheese bread", "k": 4}
    page.locator("#delete").click()
    expect(page.locator("#listing")).to_be_visible()
    assert city.client.get("/v1/subscriptions/s8").status_code == 404
    page.locator("#sought").fill("cheese bread")
    expect(page.locator("#list li", has_text="s8")).to_have_count(0)


def test_hundreds_of_subscriptions_are_found_by_words_and_kind_with_news_first(page, city):
    city.subscribe(*({**one, "id": f"many-{one['id']}"} for one in subscriptions(500)))
    city.subscribe({"id": "zz-rare", "kind": "nearest", "location": [9.0, 54.1], "keywords": "zeppelin", "k": 3})
    entries = page.locator("#list li")
    expect(page.locator("#more")).to_be_visible()
    expect(entries).to_have_count(60)
    page.locator("#sifted").get_by_title("The nearest").click()
    expect(page.locator("#list .who", has_text="The nearest")).to_have_count(60)
    page.locator("#more").click()
    assert entries.count() > 60
    page.locator("#sifted").get_by_title("all kinds").click()
    page.evaluate("document.querySelector('#list li').isTheSame = true")
    page.mouse.move(*HERE)
    city.say("A zeppelin over the harbour", (9.0, 54.1))
    expect(page.locator("#list li", has_text="zz-rare")).to_contain_text("1 new")  # by its name it would be the last
    expect(entries.first).to_contain_text("new")
    assert page.evaluate("[...document.querySelectorAll('#list li')].some((node) => node.isTheSame)")  # not made anew
    page.locator("#sought").fill("zeppelin")
    expect(entries).to_have_count(1)
    page.locator("#sought").fill("nothing like it")
    expect(page.locator("#list-end")).to_contain_text("None fits")


def test_what_is_subscribed_elsewhere_shows_when_something_reaches_it(page, city):
    city.subscribe({"id": "elsewhere", "kind": "nearest", "location": [9.1, 54.1], "keywords": "lighthouse", "k": 3})
    city.say("The lighthouse is open", (9.1, 54.1))
    page.locator("#sought").fill("lighthouse")
    expect(page.locator("#list li")).to_have_count(1)
