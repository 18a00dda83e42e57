"""A user draws regions of every shape, filters by attributes, and sees what matches and why."""

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright, which drives the browser, is not installed")
from playwright.sync_api import expect

from browser.city_service import CITY, CityService
from browser.map_page import read_map, wait_map
from browser.test_accessibility import check_reachable, check_readable
from nearcast.service.config import ServiceConfig
from nearcast.service.region_json import circle_json
from nearcast.space import Space

CENTRE, EDGE = (590, 350), (650, 350)  # on the map, between the cards
CORNERS = [(500, 260), (680, 260), (690, 450), (510, 440)]
INSIDE, OUTSIDE = (600, 345), (505, 500)
CONFIG = ServiceConfig(city=CITY.seed, window_count=2_000, attributes={"price": "float", "category": "str"})


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    """Run the service of a city whose messages have attributes."""
    service = CityService(tmp_path_factory.mktemp("market"), CONFIG)
    yield service
    service.stop()


def located(page, at):
    """Return the location of a point of the page."""
    inset = page.locator("#map").bounding_box()
    x, y = at[0] - inset["x"], at[1] - inset["y"]
    found = read_map(page, f"(({{ lng, lat }}) => map.projection.fromMap([lng, lat]))(map.map.unproject([{x}, {y}]))")
    return tuple(found)


def publish(city, page, id_, at, text, **attributes):
    body = {"id": id_, "location": located(page, at), "text": text, "attributes": attributes}
    assert city.client.post("/v1/messages", json=body).status_code == 200


def new(page, kind, shape=None):
    page.get_by_role("button", name="New subscription").click()
    page.locator("#kinds").get_by_text(kind, exact=True).click()
    if shape:
        page.locator("#shapes").get_by_text(shape, exact=True).click()
        expect(page.locator("#draw")).to_have_text(f"Draw a {shape.lower()}")


def save(page, city, id_):
    page.locator("#id").fill(id_)
    page.locator("#save").click()
    expect(page.locator("#delete")).to_be_visible()
    return city.client.get(f"/v1/subscriptions/{id_}").json()


def set_filter(page, name, value):
    if page.locator("#filters[open]").count() == 0:
        page.locator("#filters summary").click()
    page.locator(f"#field-{name}").fill(value)


def click_message(page, id_, at):
    wait_map(page, f"map.messages.has('{id_}') && map.map.loaded()")
    shown = f"map.map.queryRenderedFeatures({{ layers: ['points'] }}).some((one) => one.properties.id === '{id_}')"
    wait_map(page, shown)
    read_map(page, "map.closePopup()")  # it may cover the message
    page.mouse.click(*at)
    return page.locator(".maplibregl-popup")


def test_a_circle_with_a_condition_is_drawn_and_matches(page, city, screenshot):
    new(page, "Alert in a region", "Circle")
    expect(page.locator("#drawing")).to_contain_text("Drag a circle from its centre")
    page.mouse.move(*CENTRE)
    page.mouse.down()
    page.mouse.move(620, 350)
    assert read_map(page, "map.features.draft.length") == 1, "it is shown while it is drawn"
    page.mouse.move(*EDGE)
    page.mouse.up()
    expect(page.locator("#place")).to_contain_text("around")
    page.locator("#keywords").fill('bike OR "road bicycle"')
    set_filter(page, "where", "price <= 300 AND category = 'sport'")
    expect(page.locator("#field-where-help")).to_contain_text("price (a number), category (a text)")
    saved = save(page, city, "bikes")
    assert saved["region"]["type"] == "Feature"
    assert saved["region"]["geometry"]["coordinates"] == pytest.approx(located(page, CENTRE))
    expected = Space.earth().distance(located(page, CENTRE), located(page, EDGE))
    assert saved["region"]["properties"]["radius"] == pytest.approx(expected)
    assert saved["where"] == "price <= 300 AND category = 'sport'"

    publish(city, page, "cheap", INSIDE, "A bike to race", price=250, category="sport")
    publish(city, page, "dear", (570, 365), "A bike of carbon", price=2500, category="sport")
    publish(city, page, "far", OUTSIDE, "A bike, far away", price=250, category="sport")
    expect(page.locator("#result-list")).to_contain_text("A bike to race")
    expect(page.locator("#results-title")).to_have_text("Matches: 1")
    screenshot(page, "circle")

    popup = click_message(page, "dear", (570, 365))
    expect(popup).to_contain_text("Not in the result.")
    expect(popup.locator("mark")).to_have_text(["bike"])
    expect(popup.locator(".condition[data-passes=false]")).to_contain_text("price <= 300")
    expect(popup.locator(".condition[data-passes=true]")).to_have_count(2)
    popup = click_message(page, "far", OUTSIDE)
    expect(popup.locator(".condition[data-passes=false]")).to_contain_text("outside")
    popup = click_message(page, "cheap", INSIDE)
    expect(popup).to_contain_text("In the result.")
    expect(popup.locator(".condition[data-passes=true]")).to_have_count(3)
    screenshot(page, "explained-filters")


@pytest.mark.parametrize("end", ["double click", "Enter", "first corner"])
def test_a_polygon_is_drawn_corner_by_corner_and_matches(page, city, end, screenshot):
    new(page, "Alert in a region", "Polygon")
    expect(page.locator("#drawing")).to_contain_text("Click the corners of the polygon")
    for at in CORNERS[:-1]:
        page.mouse.click(*at)
    page.mouse.click(560, 300)
    page.keyboard.press("Backspace")  # the last corner was a mistake
    expect(page.locator("#drawing")).to_contain_text("a double click ends the polygon")
    zoom = read_map(page, "map.map.getZoom()")
    if end == "double click":
        page.mouse.dblclick(*CORNERS[-1])
    else:
        page.mouse.click(*CORNERS[-1])
        page.keyboard.press("Enter") if end == "Enter" else page.mouse.click(*CORNERS[0])
    expect(page.locator("#drawing")).to_be_hidden()
    expect(page.locator("#place")).to_have_text("4 corners")
    assert read_map(page, "map.map.getZoom()") == zoom and not read_map(page, "map.map.isMoving()")
    page.locator("#keywords").fill("lamp")
    set_filter(page, "where", "price < 50")
    id_ = f"lamps-{end.replace(' ', '-')}"
    saved = save(page, city, id_)
    (ring,) = saved["region"]["coordinates"]
    drawn = [located(page, at) for at in (*CORNERS, CORNERS[0])]
    assert [tuple(at) for at in ring] == [pytest.approx(at) for at in drawn]
    publish(city, page, f"{id_}-1", INSIDE, "A lamp for reading", price=20)
    publish(city, page, f"{id_}-2", OUTSIDE, "A lamp too far", price=20)
    expect(page.locator("#result-list")).to_contain_text("A lamp for reading")
    expect(page.locator("#result-list")).not_to_contain_text("A lamp too far")
    page.locator("#cancel").click()
    wait_map(page, f"map.features.subscriptions.some((one) => one.properties.id === '{id_}')")
    city.client.delete(f"/v1/subscriptions/{id_}")


def test_escape_cancels_a_polygon(page, city):
    new(page, "Alert in a region", "Polygon")
    page.mouse.click(*CORNERS[0])
    page.mouse.click(*CORNERS[1])
    page.keyboard.press("Escape")
    expect(page.locator("#drawing")).to_be_hidden()
    expect(page.locator("#place")).to_have_text("not on the map yet")
    expect(page.locator("#editor")).to_be_visible()


def test_a_polygon_is_drawn_by_keyboard(page, city):
    new(page, "Alert in a region", "Polygon")
    page.locator("#draw").focus()
    page.keyboard.press("Enter")
    expect(page.locator("canvas.maplibregl-canvas")).to_be_focused()
    for key in ("ArrowUp", "ArrowRight", "ArrowDown"):
        page.keyboard.press("Enter")
        before = read_map(page, "map.centre")
        page.keyboard.press(key)
        wait_map(page, f"map.centre.join() !== '{before[0]},{before[1]}' && !map.map.isMoving()")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page.locator("#keywords")).to_be_focused()
    expect(page.locator("#place")).to_have_text("4 corners")


def test_a_polygon_that_crosses_itself_is_refused_with_the_reason(page, city):
    page.expect_errors("status of 422")
    new(page, "Alert in a region", "Polygon")
    for at in [CORNERS[0], CORNERS[2], CORNERS[1], CORNERS[3]]:
        page.mouse.click(*at)
    page.keyboard.press("Enter")
    page.locator("#keywords").fill("lamp")
    expect(page.locator("#error")).to_contain_text("region must be a valid polygon")


def test_ranked_results_are_filtered_by_a_region_words_and_a_condition(page, city, screenshot):
    new(page, "Best matches")
    page.mouse.click(*CENTRE)
    page.locator("#keywords").fill("sofa")
    page.locator("#filters summary").click()
    expect(page.locator("#field-region")).to_have_text("anywhere")
    page.get_by_role("button", name="Draw a box").click()
    page.mouse.move(*CORNERS[0])
    page.mouse.down()
    page.mouse.move(*CORNERS[2])
    page.mouse.up()
    expect(page.locator("#field-region")).to_contain_text("wide")
    set_filter(page, "require", "NOT broken")
    publish(city, page, "good", INSIDE, "A soft sofa", price=90)
    publish(city, page, "broken", INSIDE, "A broken sofa", price=10)
    publish(city, page, "outside", OUTSIDE, "A sofa elsewhere", price=10)
    saved = save(page, city, "sofas")
    assert len(saved["region"]) == 4 and saved["require"] == "NOT broken" and "where" not in saved
    expect(page.locator("#result-list > li")).to_have_count(1)
    expect(page.locator("#result-list")).to_contain_text("A soft sofa")
    screenshot(page, "filters")
    check_readable(page)
    check_reachable(page)
    page.locator("#cancel").click()
    wait_map(
        page, "map.features.subscriptions.some(({ properties: { id, is } }) => id === 'sofas' && is === 'filter')"
    )
    page.locator("#list li").filter(has_text="sofa").first.click()
    expect(page.locator("#filters[open]")).to_be_visible()
    expect(page.locator("#save")).to_be_disabled()
    page.get_by_role("button", name="Remove the region").click()
    page.locator("#save").click()
    expect(page.locator("#results-title")).to_have_text("Current result: 2")
    assert "region" not in city.client.get("/v1/subscriptions/sofas").json()


def test_a_condition_on_an_unknown_attribute_is_refused_with_the_known_ones(page, city):
    page.expect_errors("status of 422")
    new(page, "Best matches")
    page.mouse.click(*CENTRE)
    page.locator("#keywords").fill("sofa")
    set_filter(page, "where", "colour = 'red'")
    expect(page.locator("#error")).to_contain_text("must name attributes of the engine: ['price', 'category']")


def test_regions_of_other_clients_are_drawn_with_their_holes(page, city):
    xmin, ymin, xmax, ymax = CITY.space.bounds.as_tuple()
    x, y, size = (xmin + xmax) / 2, (ymin + ymax) / 2, (xmax - xmin) / 10

    def ring(x, y, size):
        return [[x, y], [x + size, y], [x + size, y + size], [x, y + size], [x, y]]

    areas = [[ring(x, y, size), ring(x + size / 4, y + size / 4, size / 2)], [ring(x - 2 * size, y, size)]]
    alert = {"kind": "boolean", "keywords": "lamp"}
    city.subscribe(
        {"id": "areas", **alert, "region": {"type": "MultiPolygon", "coordinates": areas}},
        {"id": "across", **alert, "region": [179, 54, -177, 55]},
        {"id": "round", **alert, "region": circle_json([x, y], 2000)},
    )
    page.reload()
    page.wait_for_selector("body[data-ready]")
    subscriptions = "(map.features.subscriptions ?? [])"  # nothing is drawn at first
    drawn = subscriptions + ".filter((one) => one.properties.is === 'region' && one.properties.id === '%s')"
    wait_map(page, f"{drawn % 'areas'}.length === 2 && {drawn % 'round'}.length === 1")
    rings = f"{drawn % 'areas'}.map((one) => one.geometry.coordinates.length)"
    assert read_map(page, rings) == [2, 1]
    across = f"{drawn % 'across'}[0].geometry.coordinates[0].map(([x]) => x)"
    assert read_map(page, across) == [179, 183, 183, 179, 179]
    page.locator("#list li").filter(has_text="areas").first.click()
    expect(page.locator("#place")).to_have_text("12 corners")
    expect(page.locator("#save")).to_be_disabled()
    for id_ in ("areas", "round", "across"):
        city.client.delete(f"/v1/subscriptions/{id_}")
