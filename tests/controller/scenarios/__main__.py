"""`python -m tests.controller.scenarios` compares the scenarios with the machine; `--write` rewrites what they show."""

from __future__ import annotations

import sys

from tests.controller.scenarios.stage import FILES, ControllerStage
from tests.scenario_text import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], FILES, ControllerStage))
