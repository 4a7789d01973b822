"""`python -m tests.sim`: many schedules, one with its story, or the table of planted bugs."""

from __future__ import annotations

import sys

from tests.sim.command import main

if __name__ == "__main__":
    sys.exit(main())
