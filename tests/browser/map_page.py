"""What a test asks a page that cannot be read off its elements: what the map shows."""

PATIENCE_MS = 20_000


def on_map(page, script):
    """Return what a script says of `world`, the map."""
    return page.evaluate(f"() => {{ const {{ world }} = document.getElementById('map'); return {script}; }}")


def until(page, condition):
    """Wait until something is true of `world`, the map, frame by frame; the page lets nobody evaluate text."""
    page.evaluate(f"""async () => {{
        const {{ world }} = document.getElementById('map'), end = performance.now() + {PATIENCE_MS};
        while (!({condition})) {{
            if (performance.now() > end) throw new Error("not in time");
            await new Promise(requestAnimationFrame);
        }}
    }}""")
