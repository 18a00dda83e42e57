"""`python -m experiments` measures; see `command_line`."""

import sys

from experiments.command_line import main

if __name__ == "__main__":  # processes that are spawned import this module again
    sys.exit(main())
