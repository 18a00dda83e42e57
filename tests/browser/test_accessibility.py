"""The page is accessible: by keyboard, with names for screen readers, in both themes, and on a phone."""

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright, which drives the browser, is not installed")
from playwright.sync_api import expect

from browser.map_page import read_map, wait_map

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}

UNNAMED = """() => [...document.querySelectorAll('button, input, a[href], select, [role=meter], section, canvas.maplibregl-canvas')]
    .filter((one) => one.checkVisibility()).filter((one) => {
        const by = one.getAttribute('aria-labelledby')?.split(' ').map((id) => document.getElementById(id).textContent).join('');
        const labels = [...(one.labels ?? [])].map((label) => label.textContent).join('');
        const own = one.matches('button, a') ? one.textContent : '';
        return !(by || one.getAttribute('aria-label') || labels || own || one.title).trim();
    }).map((one) => one.outerHTML.slice(0, 120))"""

LOW_CONTRAST = """() => {
    const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const contrast = (a, b) => { const [low, high] = [light(a), light(b)].sort((x, y) => x - y); return (high + 0.05) / (low + 0.05); };
    const probe = document.body.appendChild(document.createElement('i'));
    const named = (name) => { probe.style.color = `var(--${name})`; return numbers(getComputedStyle(probe).color); };
    const below = (one) => {   // the background: that of the nearest opaque ancestor, or of the map
        for (let at = one; at && at.id !== 'map-area'; at = at.parentElement) {
            const paint = numbers(getComputedStyle(at).backgroundColor);
            if (paint.length < 4 || paint[3] === 1) return [paint];
        }
        return ['sea', 'land', 'field'].map(named);
    };
    const texts = [...document.querySelectorAll('body *')].filter((one) => one.checkVisibility() && !one.disabled
        && [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()) && !one.closest('datalist'));
    const lowContrast = texts.flatMap((one) => {
        const { color, fontSize, fontWeight } = getComputedStyle(one), size = parseFloat(fontSize);
        const needed = size >= 24 || (size >= 18.66 && fontWeight >= 700) ? 3 : 4.5;
        return below(one).map((paint) => contrast(numbers(color), paint)).filter((is) => is < needed).map((is) => `${is.toFixed(2)}: ${one.outerHTML.slice(0, 100)}`);
    });
    probe.remove();
    return [texts.length, lowContrast];
}"""

HIDDEN_CONTROLS = """() => [...document.querySelectorAll('button, input, a[href]')]
    .filter((one) => one.checkVisibility() && !one.disabled && !one.matches('.skip')).filter((one) => {
        const shown = one.labels?.[0]?.querySelector('input') ? one.labels[0] : one;
        shown.scrollIntoView({ block: 'center', inline: 'nearest' });
        const { left, right, top, bottom } = shown.getBoundingClientRect(), x = (left + right) / 2, y = (top + bottom) / 2;
        const there = document.elementFromPoint(x, y);
        return left < -1 || right > innerWidth + 1 || !there || !(shown.contains(there) || there.contains(shown));
    }).map((one) => one.outerHTML.slice(0, 120))"""


def focused(page):
    """Return the name of the focused element, whose focus must be visible."""
    is_visible, name = page.evaluate("""() => {
        const one = document.activeElement, shown = one.type === 'radio' ? one.closest('label') : one;
        const { outlineStyle, outlineWidth } = getComputedStyle(shown);
        return [outlineStyle !== 'none' && parseFloat(outlineWidth) >= 2, one.id || one.value || one.dataset.layer || one.textContent || one.className];
    }""")
    assert is_visible, f"the focus on {name} is not visible"
    return name


def tab_to(page, name):
    """Press Tab until an element has the focus; return all focused elements on the way."""
    passed = []
    while not passed or passed[-1] != name:
        assert len(passed) < 40, f"{name} is not reached: {passed}"
        page.keyboard.press("Tab")
        passed.append(focused(page))
    return passed


def test_a_subscription_is_created_by_keyboard(page, city):
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to subscriptions"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "new"
    page.keyboard.press("Enter")
    expect(page.locator("#editor")).to_be_visible()
    assert focused(page) == "topk"
    page.keyboard.press("ArrowRight")
    assert focused(page) == "nearest"
    page.keyboard.press("ArrowLeft")
    assert tab_to(page, "draw") == ["draw"]
    page.keyboard.press("Enter")
    expect(page.locator("#drawing")).to_contain_text("arrow keys")
    expect(page.locator("canvas.maplibregl-canvas")).to_be_focused()
    wait_map(page, "map.map.loaded()")
    before = read_map(page, "map.centre")
    page.keyboard.press("ArrowUp")
    wait_map(page, f"map.centre[1] > {before[1]} && !map.map.isMoving()")
    page.keyboard.press("Enter")
    expect(page.locator("#keywords")).to_be_focused()
    expect(page.locator("#place")).to_contain_text("N")
    page.keyboard.type("flowers")
    expect(page.locator("#result-list > li")).to_have_count(5)
    passed = tab_to(page, "field-k")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#result-list > li")).to_have_count(6)
    assert passed[-1] == "field-k" and tab_to(page, "id") == ["field-alpha", "Filters", "id"]
    page.keyboard.press("Enter")
    expect(page.locator("#delete")).to_be_visible()
    name = page.locator("#id").input_value()
    assert city.client.get(f"/v1/subscriptions/{name}").json()["k"] == 6
    tab_to(page, "delete")
    page.keyboard.press("Escape")
    expect(page.locator("#list-view")).to_be_visible()
    assert name in page.evaluate("document.activeElement.textContent")  # the focus returns to the list
    page.keyboard.press("Enter")
    expect(page.locator("#editor-title")).to_have_text("flowers")


def test_escape_cancels_drawing_first_and_then_the_editor(page):
    page.get_by_role("button", name="New subscription").click()
    expect(page.locator("#drawing")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#drawing")).to_be_hidden()
    expect(page.locator("#editor")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#editor")).to_be_hidden()
    expect(page.locator("#new")).to_be_focused()


def test_controls_have_names_and_texts_have_contrast_in_both_themes(page, city, screenshot):
    city.publish_city(30)
    expect(page.locator("#activity-list li").first).to_be_visible()
    page.locator("[data-layer=shards]").check()
    expect(page.locator("#shards")).to_contain_text("1 shard")
    colours = set()
    for theme in ("light", "dark"):
        if theme == "dark":
            page.get_by_role("button", name="dark").click()
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        check_readable(page)
        screenshot(page, f"list-{theme}")
        page.locator("#list li").first.click()
        expect(page.locator("#results")).to_be_visible()
        check_readable(page)
        screenshot(page, f"editor-{theme}")
        page.keyboard.press("Escape")
        colours.add(read_map(page, "map.map.getPaintProperty('land', 'fill-color')"))
    assert len(colours) == 2  # the map follows the theme
    roles = ("banner", "main", "log", "status")
    assert [page.get_by_role(role).count() > 0 for role in roles] == [True] * len(roles)
    page.reload()
    page.wait_for_selector("body[data-ready]")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")  # the choice is stored


def check_readable(page):
    assert page.evaluate(UNNAMED) == []
    n_texts, low_contrast = page.evaluate(LOW_CONTRAST)
    assert n_texts > 30 and low_contrast == []
    assert page.locator("[id]").evaluate_all("(all) => all.length === new Set(all.map((one) => one.id)).size")


def check_reachable(page):
    beyond = "() => [document.documentElement, document.querySelector('.cards')].map((one) => one.scrollWidth - one.clientWidth)"
    assert page.evaluate(beyond) == [0, 0]  # no horizontal scrolling
    assert page.evaluate(HIDDEN_CONTROLS) == []


@pytest.mark.parametrize("size", [(1024, 640), (800, 1100)], ids=["small laptop", "tablet"])
def test_all_controls_are_reachable_on_other_screens(page, size):
    before = page.viewport_size
    page.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
    check_reachable(page)
    page.locator("#list li").first.click()
    check_reachable(page)
    page.set_viewport_size(before)


def test_a_phone_reaches_all_controls_and_draws_by_touch(open_page, city, screenshot):
    page = open_page(city.address, **PHONE, color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")  # the theme of the system
    city.publish_city(30)
    expect(page.locator("#activity-list li").first).to_be_attached()
    check_reachable(page)
    page.locator("#new").scroll_into_view_if_needed()
    screenshot(page, "phone")
    page.get_by_role("button", name="New subscription").tap()
    page.locator("#kinds").get_by_text("Alert in a region").click()
    expect(page.locator("#drawing")).to_have_text("Drag a box on the map, or tap two corners.")
    touch = page.context.new_cdp_session(page)
    for kind, points in (
        ("touchStart", [(120, 150)]),
        ("touchMove", [(200, 220)]),
        ("touchMove", [(280, 300)]),
        ("touchEnd", []),
    ):
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y} for x, y in points]})
    expect(page.locator("#place")).to_contain_text("wide")
    page.locator("#keywords").fill("coffee OR tonight")
    expect(page.locator("#result-list > li").first).to_be_attached()
    check_reachable(page)
    page.locator("#kinds").get_by_text("Best matches").click()
    expect(page.locator("#place")).to_contain_text("N")  # the centre of the box
    centre = page.locator("#place").inner_text()
    page.locator("#draw").click()
    expect(page.locator("#drawing")).to_be_visible()
    page.touchscreen.tap(240, 280)
    expect(page.locator("#place")).not_to_have_text(centre)
    screenshot(page, "phone-editor")
    page.locator("#cancel").tap()
    expect(page.locator("#error")).to_have_text("This is not saved. Tap again to discard it.")
    labels = "[5, 200, 340].map((x) => map.animations.labelBoxOf('a long text '.repeat(9), x, 100))"
    for label in read_map(page, labels):
        assert label["x"] >= 0 and label["x"] + label["width"] <= 390 and label["text"].endswith("…")
