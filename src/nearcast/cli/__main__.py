"""`python -m nearcast.cli`."""

import sys

from nearcast.cli import main

sys.exit(main())
