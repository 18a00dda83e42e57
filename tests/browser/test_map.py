"""A user draws a subscription on the map and sees its matches and their scores."""

import re
from urllib.parse import urlsplit

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright, which drives the browser, is not installed")
from playwright.sync_api import expect

from browser.city_service import CITY, subscriptions
from browser.map_page import read_map, wait_map
from nearcast.space import Space

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
    page.locator("#kinds").get_by_text("Alert in a region", exact=True).click()
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
    page.locator("#kinds").get_by_text("Alert in a region").click()
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
    page.locator("#keywords").fill("coffee OR sale OR oysters")
    expect(page.locator("#results-title")).to_contain_text("Preview: ")
    note = page.locator("#results-note")
    expect(note).to_contain_text("Once saved, it starts empty: only messages that come later count.")
    page.locator("#keywords").fill("oysters AND (sale OR free)")
    page.locator("#id").fill("harbour")
    page.locator("#save").click()
    expect(page.locator("#delete")).to_be_visible()
    expect(note).to_contain_text("Only messages after it was saved count, so a preview may show more.")
    xmin, ymin, xmax, ymax = city.client.get("/v1/subscriptions/harbour").json()["region"]
    city.publish("Oysters for a sale, in the middle", ((xmin + xmax) / 2, (ymin + ymax) / 2))
    city.publish("Oysters for a sale, elsewhere", (CITY.space.bounds.xmin, ymin))
    expect(page.locator("#result-list")).to_contain_text("in the middle")
    expect(page.locator("#result-list")).not_to_contain_text("elsewhere")
    more = {"location": [(xmin + xmax) / 2, (ymin + ymax) / 2], "text": "More oysters, free"}
    city.client.post("/v1/messages", json=[{"id": f"oysters-{number}", **more} for number in range(119)])
    expect(page.locator("#results-title")).to_have_text("Matches: 120")
    expect(note).to_contain_text("The first 50 are shown.")
    expect(page.locator("#result-list > li")).to_have_count(50)
    page.locator("#more-results").click()
    expect(page.locator("#result-list > li")).to_have_count(100)


def test_a_name_is_free_text_and_the_words_are_the_default(page, city):
    for name, id_ in (("Café near work!", "Cafe-near-work"), ("", "cheese-bread"), (" ", "cheese-bread-2")):
        create(page, "Best matches", "cheese bread", id_=name)
        page.locator("#save").click()
        expect(page.locator("#id")).to_have_value(id_)
        assert city.client.get(f"/v1/subscriptions/{id_}").json()["keywords"] == "cheese bread"
        page.locator("#cancel").click()
        expect(page.locator("#list-view")).to_be_visible()


def test_changes_are_discarded_at_the_second_press_only(page):
    create(page, "Best matches", "cheese bread", id_="unsaved")
    page.locator("#cancel").click()
    expect(page.locator("#error")).to_have_text("This is not saved. Press again to discard it.")
    page.locator("#keywords").fill("cheese")
    expect(page.locator("#error")).to_be_empty()
    for _ in range(2):
        expect(page.locator("#editor")).to_be_visible()
        page.locator("#cancel").click()
    expect(page.locator("#list-view")).to_be_visible()


def test_a_missing_box_is_named_and_the_error_stays_in_view(page):
    page.get_by_role("button", name="New subscription").click()
    page.locator("#kinds").get_by_text("Alert in a region").click()
    page.locator("#keywords").fill("coffee")
    page.locator("#save").click()
    expect(page.locator("#error")).to_contain_text("There is no region yet: draw one on the map, or use its centre.")
    expect(page.locator("#error")).to_be_in_viewport(ratio=1)
    expect(page.locator("#drawing")).to_be_visible()
    page.locator("#use-centre").click()
    expect(page.locator("#drawing")).to_be_hidden()


def test_a_violated_rule_is_shown(page, city):
    page.expect_errors("status of 422")
    page.get_by_role("button", name="New subscription").click()
    page.locator("#kinds").get_by_text("Alert in a region").click()
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
    create(page, "Social", "brunch", id_="my-feed")
    expect(page.locator("#users option")).to_have_count(CITY.n_people)
    page.locator("#field-user").fill("u7")
    expect(page.locator("#result-list > li").first).to_contain_text("social graph")
    page.locator("#save").click()
    expect(page.locator("#results-title")).to_contain_text("Current result")
    assert city.client.get("/v1/subscriptions/my-feed").json()["user"] == "u7"


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
    expect(page.locator("#delete")).to_have_text("Press again to delete")
    assert city.client.get("/v1/subscriptions/s8").status_code == 200
    delete_while_an_update_arrives(page, city, before)
    expect(page.locator("#list-view")).to_be_visible()
    assert city.client.get("/v1/subscriptions/s8").status_code == 404
    page.locator("#search").fill("cheese bread")
    expect(page.locator("#list li", has_text="s8")).to_have_count(0)


def delete_while_an_update_arrives(page, city, subscription):
    """Delete the open subscription. The answer is late: before it, an update arrives, and nothing may follow it."""
    held, requested = [], []
    page.route("**/v1/subscriptions/s8", lambda route: held.append(route))
    with page.expect_request("**/v1/subscriptions/s8"):
        page.locator("#delete").click()
    page.on("request", lambda request: requested.append(request.url))
    city.publish("cheese bread", subscription["location"])
    assert city.client.delete("/v1/subscriptions/s8").status_code == 200
    city.subscribe({"id": "later", "kind": "nearest", "location": [9, 54.1], "keywords": "cathedral", "k": 1})
    city.publish("The cathedral is open", (9, 54.1))
    expect(page.locator("#activity-list", has_text="cathedral")).to_be_attached()
    held[0].fulfill(status=200, json={"command": 0, "updates": 0})
    page.unroute_all()
    expect(page.locator("#editor")).to_be_hidden()
    assert not [url for url in requested if "s8" in url]


def test_the_list_is_searched_by_words_and_kind_and_sorted_by_updates(page, city):
    city.subscribe(*({**one, "id": f"many-{one['id']}"} for one in subscriptions(500)))
    city.subscribe({"id": "zz-rare", "kind": "nearest", "location": [9.0, 54.1], "keywords": "zeppelin", "k": 3})
    entries = page.locator("#list li")
    expect(page.locator("#more")).to_be_visible()
    expect(entries).to_have_count(60)
    page.locator("#kind-filter").get_by_title("Nearest").click()
    expect(page.locator("#list .kind-and-id", has_text="Nearest")).to_have_count(60)
    page.locator("#more").click()
    expect(entries.nth(60)).to_be_visible()
    page.locator("#kind-filter").get_by_title("all kinds").click()
    expect(entries).to_have_count(60)
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


def test_many_subscriptions_are_shown_without_reading_them_all(page, city, screenshot):
    city.subscribe(*({**one, "id": f"more-{one['id']}"} for one in subscriptions(4_000)))
    requested, total = [], city.client.get("/v1/subscriptions").json()["total"]
    page.on("request", lambda request: requested.append(urlsplit(request.url).path))
    page.on("framenavigated", lambda frame: requested.clear())  # those of the page before
    page.reload()
    page.wait_for_selector("body[data-ready]")
    expect(page.locator("#list li")).to_have_count(60)
    expect(page.locator("#count")).to_have_text(f"{total:,}")
    expect(page.locator(".cluster").first).to_be_visible()
    assert page.locator(".cluster").count() < 100
    assert [requested.count(f"/v1/{name}") for name in ("subscriptions", "clusters")] == [1, 1]
    assert page.locator("#subscriptions").evaluate("(card) => card.scrollWidth - card.clientWidth") == 0
    screenshot(page, "many")

    page.locator("#kind-filter").get_by_title("Best matches").click()
    page.locator("#search").fill("more jazz")
    found = city.client.get("/v1/subscriptions", params={"search": "more jazz", "kind": "topk"}).json()
    expect(page.locator("#count")).to_have_text(f"{found['total']:,} of {total:,}")
    first = found["subscriptions"][0]["id"]
    requested.clear()
    page.locator(f"#list li[data-id={first}]").click()
    expect(page.locator("#result-list .part").first).to_be_attached()
    results = f"/v1/subscriptions/{first}/results"
    assert set(requested) <= {results, "/v1/reaches", "/v1/clusters"} and requested.count(results) == 1
    page.locator("#cancel").click()

    page.locator("#search").fill("")
    page.locator("#kind-filter").get_by_title("all kinds").click()
    expect(page.locator("#count")).to_have_text(f"{total:,}")
    zoom = read_map(page, "map.map.getZoom()")
    page.locator(".cluster").first.click()
    wait_map(page, f"map.map.getZoom() > {zoom} && !map.map.isMoving()")
    page.evaluate("document.getElementById('map').liveMap.showAll(0)")


def test_a_kind_chosen_just_before_an_answer_stays_chosen(page):
    page.evaluate("""() => {
        const { fetch } = window;
        window.fetch = async (...request) => {
            const answer = await fetch(...request);
            if (String(request[0]).includes("search=jazz")) {
                window.fetch = fetch;
                document.querySelector("#kind-filter [title='Best matches']").click();
            }
            return answer;
        };
    }""")
    with page.expect_response(lambda answer: "search=jazz" in answer.url and "kind=topk" in answer.url):
        page.locator("#search").fill("jazz")
    expect(page.get_by_role("radio", name="Best matches")).to_be_checked()
    page.locator("#kind-filter").get_by_title("all kinds").click()
    expect(page.get_by_role("radio", name="all kinds")).to_be_checked()


def test_subscriptions_of_other_clients_appear_with_their_first_update(page, city):
    city.subscribe({"id": "elsewhere", "kind": "nearest", "location": [9.1, 54.1], "keywords": "lighthouse", "k": 3})
    city.publish("The lighthouse is open", (9.1, 54.1))
    page.locator("#search").fill("lighthouse")
    expect(page.locator("#list li")).to_have_count(1)
