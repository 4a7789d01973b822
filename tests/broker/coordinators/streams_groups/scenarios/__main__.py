"""`python -m tests.broker.coordinators.streams_groups.scenarios` compares the scenarios with the machine; `--write`
rewrites them.
"""

from __future__ import annotations

import sys

from tests.broker.coordinators.streams_groups.scenarios.stage import FILES, StreamsStage
from tests.scenario_text import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], FILES, StreamsStage))
