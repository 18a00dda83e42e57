"""Access to the live map object of the page, for what its elements do not show."""

TIMEOUT_MS = 20_000


def read_map(page, script):
    """Return the value of a script; `map` is the live map."""
    return page.evaluate(f"() => {{ const {{ liveMap: map }} = document.getElementById('map'); return {script}; }}")


def wait_map(page, condition):
    """Wait until a condition on `map`, the live map, holds. The page's policy forbids Playwright's own way of waiting."""
    page.evaluate(f"""async () => {{
        const {{ liveMap: map }} = document.getElementById('map'), end = performance.now() + {TIMEOUT_MS};
        while (!({condition})) {{
            if (performance.now() > end) throw new Error("timeout");
            await new Promise(requestAnimationFrame);
        }}
    }}""")
