"""The figures of the README, generated from `data/headline.json`.

python -m experiments.readme_figures     rewrite the block between the two markers
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from experiments.headline import DATA

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def figures_block(recorded: dict[str, Any]) -> str:
    """Return the table of the README."""
    lines = [
        "| kind | subscriptions | window | messages/s | updates per message | p99 of a batch | commit |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, run in recorded.items():
        figures = run["figures"]
        window = f"{figures['window']:,}" if "--window" in run["command"] else "none"
        updates = figures["updates"] / figures["messages"]
        lines.append(
            f"| `{kind}` | {figures['subscriptions']:,} | {window} | {figures['messages_per_second']:,.0f} |"
            f" {updates:,.1f} | {figures['p99_ms']:,.1f} ms | {run['commit']} |"
        )
    machines = " and ".join(dict.fromkeys(run["machine"] for run in recorded.values()))
    commands = "; ".join(f"`{run['command']}`" for run in recorded.values())
    return "\n".join([*lines, "", f"One worker on a machine with {machines}. Commands: {commands}."])


def render(readme: str, recorded: dict[str, Any]) -> str:
    """Return the README with its figures replaced."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{figures_block(recorded)}\n{END}{after}"


def main() -> int:
    """Rewrite the README."""
    README.write_text(render(README.read_text(), json.loads(DATA.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
