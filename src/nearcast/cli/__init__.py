"""The command line: `nearcast demo | run | serve | bench | advise`. A command imports what it needs when it runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nearcast.cli import advise, bench, demo, run, serve
from nearcast.errors import NearcastError

COMMANDS = (demo, run, serve, bench, advise)
"""Commands: modules with NAME, HELP, `add_options(parser)` and `run(options)`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="nearcast", description="Standing subscriptions over a stream of places and words, answered exactly."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(
            command.NAME, help=command.HELP, description=command.HELP,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )  # fmt: skip
        command.add_options(sub)
        sub.set_defaults(run=command.run)
    options = parser.parse_args(argv)
    try:
        status: int = options.run(options)
    except NearcastError as error:
        print(f"nearcast: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("nearcast: stopped", file=sys.stderr)
        return 130
    return status
