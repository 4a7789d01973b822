"""What Anabranch answers differently on purpose, or not yet like Kafka: each difference with its reason.

A row names the answers by a pattern over "API.case #place path"; `test_differential` fails on a difference that no row
explains, and on a row that explains nothing any more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tests.differential.compare import Difference


@dataclass(frozen=True, slots=True)
class Known:
    """A difference that is understood."""

    pattern: str
    why: str

    def explains(self, difference: Difference) -> bool:
        """Whether it is this one."""
        story, _, place = difference.what.split(" ", 2)
        return re.fullmatch(self.pattern, f"{story} {place} {difference.path}") is not None


KNOWN_DIFFERENCES: Final[tuple[Known, ...]] = (
    Known(
        r"WriteTxnMarkers\.markers #5 markers\[.*",
        "Kafka answers for several producers in the order of a hash map; ours is the order of the request",
    ),
)
