"""A user draws a subscription on the map and sees its matches and their scores."""

import re

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

from browser.city_service import CITY, subscriptions
from browser.map_page import read_map, wait_map
from nearcast.space import Space

pytestmark = pytest.mark.xdist_group("browser")

CORNER, OPPOSITE = (480, 250), (700, 460)  # on the map, between the cards

RADIUS = """(() => {
    const { draft } = map.features, circle = draft.find((one) => one.properties.is === 'circle');
    const pin = draft.find((one) => one.properties.is === 'pin').geometry.coordinates;
    return circle ? map.projection.distance(pin, circle.geometry.coordinates[0][0]) : 0;
})()"""


def draft_of(page):
    """Return the coordinates of the features of the draft, by type."""
    features = read_map(page, "map.features.draft")
    return {one["properties"]["is"]: one["geometry"]["coordinates"] for one in features}


def radius_of(page):
    """Return the radius of the circle around the pin, or None."""
    draft, space = draft_of(page), Space(CITY.space.bounds, metric="haversine", max_distance=1.0)
    return None if "circle" not in draft else space.distance(tuple(draft["pin"]), tuple(draft["circle"][0][0]))


def slide(page, name, value):
    page.locator(f"#field-{name}").fill(str(value))


def create(page, kind, words, *, id_, at=CORNER):
    page.get_by_role("button", name="New subscription").click()
    page.locator("#kinds").get_by_text(kind, exact=True).click()
    page.mouse.click(*at)
    page.locator("#keywords").fill(words)
    page.locator("#id").fill(id_)


def test_messages_appear_and_statistics_update(page, city, screenshot):
    expect(page.locator("#connection")).to_have_text("live")
    expect(page.locator("#count")).to_have_text(re.compile(r"\d+"))
    expect(page.locator("[data-of=visited_per_message] dd")).to_have_text("–")  # no message yet
    city.publish_city(60)
    wait_map(page, "map.messages.size >= 60 && map.map.queryRenderedFeatures({ layers: ['points'] }).length")
    expect(page.locator("[data-of=messages_per_second] dd")).not_to_have_text("–")
    expect(page.locator("#activity-list li").first).to_contain_text("matches")
    screenshot(page, "city-light")


def test_a_saved_subscription_receives_matches(page, city, screenshot):
    create(page, "Best matches", "coffee tonight", id_="evening")
    results = page.locator("#result-list > li")
    expect(results).to_have_count(5)
    expect(page.locator("#results-title")).to_contain_text("Preview")
    before = results.first.inner_text()
    slide(page, "k", 8)
    expect(results).to_have_count(8)
    slide(page, "alpha", 1)
    expect(results.first).to_contain_text("× 1.00")  # nearness alone counts
    assert results.first.inner_text() != before
    farthest = radius_of(page)
    slide(page, "k", 1)
    expect(results).to_have_count(1)
    assert radius_of(page) < farthest
    slide(page, "alpha", 0.5)

    page.locator("#save").click()
    expect(page.locator("#results-title")).to_contain_text("Current result")
    saved = city.client.get("/v1/subscriptions/evening").json()
    assert (saved["kind"], saved["keywords"], saved["k"], saved["alpha"]) == ("topk", "coffee tonight", 1, 0.5)

    city.publish("Coffee tonight, right here", saved["location"])
    wait_map(page, "map.animations.active.some((one) => one.isSelected)")  # a thread connects them
    expect(results.first).to_contain_text("right here")
    expect(results.first).to_contain_text("0 m away")
    screenshot(page, "results-light")


def test_an_operator_in_small_letters_gets_a_hint(page):
    page.get_by_role("button", name="New subscription").click()
    page.locator("#kinds").get_by_text("Alert in a box", exact=True).click()
    page.locator("#use-centre").click()
    page.locator("#keywords").fill("coffee or jazz")
    hint = page.locator("#keywords-hint")
    expect(hint).to_contain_text("'or' is searched as a word. Write OR in capitals")
    page.locator("#keywords").fill("coffee OR jazz")
    expect(hint).to_have_text("")


def test_results_update_while_a_slider_moves(page):
    create(page, "Best matches", "coffee tonight", id_="moving")
    expect(page.locator("#result-list > li")).to_have_count(5)
    wait_map(
        page,
        """(() => {
        const alpha = document.getElementById('field-alpha'), k = document.getElementById('field-k');
        alpha.value = Number(alpha.value) > 0.5 ? 0.1 : 0.9;
        k.value = 9;
        alpha.dispatchEvent(new Event('input', { bubbles: true }));  // in every frame, without a pause
        return document.querySelectorAll('#result-list > li').length === 9;
    })()""",
    )


def test_the_parts_of_a_score_add_up_to_it(page, city):
    create(page, "Best matches", "jazz concert", id_="parts")
    page.locator("#save").click()
    expect(page.locator("#results-title")).to_contain_text("Current result")
    rows = page.locator("#result-list > li")
    expect(rows).to_have_count(5)
    expect(rows.first.get_by_role("meter")).to_have_count(2)
    for row in rows.all():
        parts = [product.split(" × ") for product in row.locator(".product").all_inner_texts()]
        score = sum(float(value) * float(weight) for value, weight in parts)
        assert score == pytest.approx(float(row.locator(".score").inner_text()), abs=0.02)


def test_a_clicked_message_is_explained(page, city):
    create(page, "Best matches", "vintage records", id_="fares")
    page.locator("#save").click()
    expect(page.locator("#results-title")).to_contain_text("Current result")
    corner = city.client.get("/v1/subscriptions/fares").json()["location"][0], CITY.space.bounds.ymax
    for text, verdict in (("Vintage records, far up", "result."), ("Nothing of the kind", "Not in the result.")):
        name = city.publish(text, corner)
        wait_map(page, f"map.messages.has('{name}') && map.map.loaded()")
        wait_map(
            page,
            f"map.map.queryRenderedFeatures({{ layers: ['points'] }}).some((one) => one.properties.id === '{name}')",
        )
        where, inset = read_map(page, f"map.map.project({list(corner)})"), page.locator("#map").bounding_box()
        page.mouse.click(inset["x"] + where["x"], inset["y"] + where["y"])
        expect(page.locator(".maplibregl-popup")).to_contain_text(verdict)
    expect(page.locator(".maplibregl-popup")).to_contain_text("no term is shared")


def test_a_box_is_drawn_by_drag_or_clicks_and_matches_messages_inside(page, city):
    page.get_by_role("button", name="New subscription").click()
    page.locator("#kinds").get_by_text("Alert in a box").click()
    page.mouse.move(*CORNER)
    page.mouse.down()
    page.mouse.move(600, 380)
    assert "area" in draft_of(page)
    page.mouse.move(*OPPOSITE)
    page.mouse.up()
    dragged = draft_of(page)["area"]
    page.locator("#draw").click()
    page.mouse.click(*OPPOSITE)
    page.mouse.click(*CORNER)
    assert draft_of(page)["area"] == dragged
    page.locator("#keywords").fill("oysters AND (sale OR free)")
    page.locator("#id").fill("harbour")
    page.locator("#save").click()
    expect(page.locator("#delete")).to_be_visible()
    xmin, ymin, xmax, ymax = city.client.get("/v1/subscriptions/harbour").json()["region"]
    city.publish("Oysters for a sale, in the middle", ((xmin + xmax) / 2, (ymin + ymax) / 2))
    city.publish("Oysters for a sale, elsewhere", (CITY.space.bounds.xmin, ymin))
    expect(page.locator("#result-list")).to_contain_text("in the middle")
    expect(page.locator("#result-list")).not_to_contain_text("elsewhere")


def test_a_violated_rule_is_shown(page, city):
    page.expect_errors("status of 422")
    page.get_by_role("button", name="New subscription").click()
    page.locator("#kinds").get_by_text("Alert in a box").click()
    page.locator("#use-centre").click()
    page.locator("#keywords").fill("coffee AND (")
    expect(page.get_by_role("alert").filter(has_text="keywords")).to_be_visible()
    page.locator("#keywords").fill("coffee")
    expect(page.locator("#error")).to_be_empty()


def test_the_circle_of_a_similarity_subscription_is_its_reach(page, city):
    create(page, "Similar and near", "ramen", id_="alike")
    for delta, tau in ((0.5, 0.9), (0.2, 0.7)):
        slide(page, "delta", delta)
        slide(page, "tau", tau)
        reach = (1 - (tau - delta) / (1 - delta)) * CITY.space.max_distance
        wait_map(page, f"Math.abs({RADIUS} / {reach} - 1) < 1e-4")
        assert radius_of(page) == pytest.approx(reach, rel=1e-6)
    slide(page, "delta", 0.8)
    wait_map(page, "!map.features.draft.some((one) => one.properties.is === 'circle')")  # words alone are enough


def test_a_social_subscription_has_a_user(page, city):
    create(page, "Social", "brunch", id_="friends")
    expect(page.locator("#users option")).to_have_count(CITY.n_people)
    page.locator("#field-user").fill("u7")
    expect(page.locator("#result-list > li").first).to_contain_text("friends")
    page.locator("#save").click()
    expect(page.locator("#results-title")).to_contain_text("Current result")
    assert city.client.get("/v1/subscriptions/friends").json()["user"] == "u7"


def test_a_pin_opens_its_subscription_to_change_and_delete_it(page, city):
    before = city.client.get("/v1/subscriptions/s8").json()
    pins = f"map.map.queryRenderedFeatures(map.map.project({before['location']}), {{ layers: ['pins'] }})"
    wait_map(page, f"!map.map.isMoving() && {pins}.some((pin) => pin.properties.id === 's8')")
    where = read_map(page, f"map.map.project({before['location']})")
    inset = page.locator("#map").bounding_box()
    page.mouse.click(inset["x"] + where["x"], inset["y"] + where["y"])
    expect(page.locator("#editor-title")).to_have_text(before["keywords"])
    expect(page.locator("#save")).to_be_disabled()
    page.locator("#keywords").fill("cheese bread")
    slide(page, "k", 4)
    page.locator("#save").click()
    expect(page.locator("#editor-title")).to_have_text("cheese bread")
    assert city.client.get("/v1/subscriptions/s8").json() == {**before, "keywords": "cheese bread", "k": 4}
    page.locator("#delete").click()
    expect(page.locator("#list-view")).to_be_visible()
    assert city.client.get("/v1/subscriptions/s8").status_code == 404
    page.locator("#search").fill("cheese bread")
    expect(page.locator("#list li", has_text="s8")).to_have_count(0)


def test_the_list_is_searched_by_words_and_kind_and_sorted_by_updates(page, city):
    city.subscribe(*({**one, "id": f"many-{one['id']}"} for one in subscriptions(500)))
    city.subscribe({"id": "zz-rare", "kind": "nearest", "location": [9.0, 54.1], "keywords": "zeppelin", "k": 3})
    entries = page.locator("#list li")
    expect(page.locator("#more")).to_be_visible()
    expect(entries).to_have_count(60)
    page.locator("#kind-filter").get_by_title("Nearest").click()
    expect(page.locator("#list .kind-and-id", has_text="Nearest")).to_have_count(60)
    page.locator("#more").click()
    assert entries.count() > 60
    page.locator("#kind-filter").get_by_title("all kinds").click()
    page.evaluate("document.querySelector('#list li').isOriginal = true")
    page.mouse.move(*CORNER)
    city.publish("A zeppelin over the harbour", (9.0, 54.1))
    expect(page.locator("#list li", has_text="zz-rare")).to_contain_text("1 new")  # by its id it would be the last
    expect(entries.first).to_contain_text("new")
    assert page.evaluate(
        "[...document.querySelectorAll('#list li')].some((node) => node.isOriginal)"
    )  # nodes are reused
    page.locator("#search").fill("zeppelin")
    expect(entries).to_have_count(1)
    page.locator("#search").fill("nothing like it")
    expect(page.locator("#list-end")).to_contain_text("No subscription matches")


def test_subscriptions_of_other_clients_appear_with_their_first_update(page, city):
    city.subscribe({"id": "elsewhere", "kind": "nearest", "location": [9.1, 54.1], "keywords": "lighthouse", "k": 3})
    city.publish("The lighthouse is open", (9.1, 54.1))
    page.locator("#search").fill("lighthouse")
    expect(page.locator("#list li")).to_have_count(1)
