"""One metric as Prometheus shows it: its name, its kind, its help text, and how its values are read.

Nodes and audits have such metrics, each read from a state of its own at each scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from anabranch.broker.metrics.histogram import Histogram

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"

Samples = Iterable[tuple[Mapping[str, str], float | Histogram]]
"""Labels and values."""
Source = TypeVar("Source")


@dataclass(frozen=True, slots=True)
class Family(Generic[Source]):
    """One metric; `read` returns a value, or one for each set of labels."""

    name: str
    kind: str
    help: str
    read: Callable[[Source], float | Histogram | Samples]

    @property
    def full_name(self) -> str:
        """The metric's name with the prefix `anabranch_`."""
        return f"anabranch_{self.name}"

    def samples(self, source: Source) -> Samples:
        """Read the values with their labels."""
        found = self.read(source)
        return [({}, found)] if isinstance(found, int | float | Histogram) else found
