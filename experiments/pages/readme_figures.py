"""The block of figures in the README of the project."""

from __future__ import annotations

from experiments.data_file import Record
from experiments.pages.markdown import join, listed, paragraph, table

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
KINDS = ("boolean", "similarity", "topk", "nearest", "social")
NEEDS = tuple(f"headline/{kind}" for kind in KINDS)


def block(records: dict[str, Record]) -> str:
    """Return the table, the machine and the commands."""
    cells = []
    for kind in KINDS:
        (row,) = records[kind].rows
        window = f"{row['window']:,}" if "--window" in row["command"] else "none"
        cells.append(
            [
                f"`{kind}`", f"{row['subscriptions']:,}", window, f"{row['messages_per_second']:,.0f}",
                f"{row['updates'] / row['messages']:,.1f}", f"{row['p99_ms']:,.1f} ms", records[kind].commit,
            ]
        )  # fmt: skip
    names = ["kind", "subscriptions", "window", "messages/s", "updates per message", "p99 of a batch", "commit"]
    machines = listed(dict.fromkeys(records[kind].machine for kind in KINDS))
    commands = "\n".join(records[kind].rows[0]["command"] for kind in KINDS)
    return join(
        table(names, cells),
        paragraph(f"One worker on a machine with {machines}, measured by these commands:"),
        f"```sh\n{commands}\n```",
    )


def render(readme: str, records: dict[str, Record]) -> str:
    """Return the README with its figures replaced."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{block(records)}\n{END}{after}"
