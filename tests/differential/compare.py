"""Compares two recordings of the corpus: equal responses, and differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from anabranch.journal.comparison import unequal
from tests.differential.case import Answer


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs in one answer."""

    api: str
    version: int
    what: str
    path: str
    kafka: Any
    ours: Any
    request: str

    def __str__(self) -> str:
        return f"{self.what}: {self.api} v{self.version} {self.path}: Kafka {self.kafka!r}, ours {self.ours!r}"


@dataclass(slots=True)
class Comparison:
    """All answers of two clusters."""

    asked: Counter[str]
    unequal: Counter[str]
    differences: list[Difference]

    @property
    def share(self) -> float:
        """How many of all answers are equal."""
        return 1 - self.unequal.total() / max(1, self.asked.total())


def compare(kafka: Iterable[Answer], ours: Iterable[Answer]) -> Comparison:
    """Compare answer by answer; one that only one cluster gave counts as a difference."""
    theirs_by_place = {answer.what: answer for answer in kafka}
    ours_by_place = {answer.what: answer for answer in ours}
    result = Comparison(Counter(), Counter(), [])
    for what in theirs_by_place | ours_by_place:
        their, our = theirs_by_place.get(what), ours_by_place.get(what)
        known = their or our
        assert known is not None
        result.asked[known.api] += 1
        if their is None or our is None:
            found = [("", "asked" if their else "not asked any more", "asked" if our else "not asked any more")]
        else:
            found = list(unequal(their.content, our.content))
        if found:
            result.unequal[known.api] += 1
        result.differences += [
            Difference(known.api, known.version, what, path, a, b, known.request) for path, a, b in found
        ]
    return result


def grouped(differences: Iterable[Difference]) -> list[str]:
    """One line for the same difference at several versions."""
    lines: dict[tuple[str, str, str, str, str], list[int]] = {}
    for one in differences:
        story, version, place = one.what.split(" ", 2)
        row = (f"{story} {place}", one.api, one.path, repr(one.kafka), repr(one.ours))
        lines.setdefault(row, []).append(int(version[1:]))
    return [
        f"{place}: {api} v{_ranges(versions)} {path}: Kafka {kafka}, ours {ours}"
        for (place, api, path, kafka, ours), versions in lines.items()
    ]


def _ranges(versions: list[int]) -> str:
    first, last = min(versions), max(versions)
    if set(versions) == set(range(first, last + 1)):
        return str(first) if first == last else f"{first}-{last}"
    return ",".join(map(str, sorted(set(versions))))
