"""`python -m experiments.pages` generates; see `command_line`."""

import sys

from experiments.pages.command_line import main

if __name__ == "__main__":
    sys.exit(main())
