"""The command line: `nearcast COMMAND`. A command imports what it needs when it runs."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence

from nearcast import __version__
from nearcast.cli import advise, bench, demo, refresh, rescale, run, serve, warmup
from nearcast.errors import NearcastError

COMMANDS = (demo, run, refresh, rescale, serve, bench, advise, warmup)
"""Commands: modules with NAME, HELP, `add_options(parser)` and `run(options)`."""


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults that say something."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False, []) else super()._get_help_string(action)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="nearcast", description="Match a stream of geotagged messages against standing subscriptions, exactly."
    )
    parser.add_argument("--version", action="version", version=f"nearcast {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(
            command.NAME, help=command.HELP, description=command.HELP,
            formatter_class=_HelpFormatter,
        )  # fmt: skip
        command.add_options(sub)
        sub.set_defaults(run=command.run)
    options = parser.parse_args(_attach_negative_values(sys.argv[1:] if argv is None else argv))
    try:
        status: int = options.run(options)
    except NearcastError as error:
        print(f"nearcast: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("nearcast: stopped", file=sys.stderr)
        return 130
    return status


def _attach_negative_values(arguments: Sequence[str]) -> list[str]:
    """Join options with values that start with a negative number, which argparse would take for options.

    >>> _attach_negative_values(["serve", "--bounds", "-10,35,30,60", "--port", "0"])
    ['serve', '--bounds=-10,35,30,60', '--port', '0']
    """
    joined: list[str] = []
    for argument in arguments:
        if joined and re.match(r"-\.?\d", argument) and re.fullmatch(r"--[a-z][a-z-]*", joined[-1]):
            joined[-1] = f"{joined[-1]}={argument}"
        else:
            joined.append(argument)
    return joined
