"""`python -m tests.broker.coordinators.scenarios` compares the scenarios with the machine; `--write` rewrites them."""

from __future__ import annotations

import sys

from tests.broker.coordinators.scenarios.stage import FILES, GroupStage
from tests.scenario_text import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], FILES, GroupStage))
