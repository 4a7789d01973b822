"""Two recordings of the corpus side by side: which answers are equal, and where the others differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.differential.case import Answer
from tests.differential.plain import NOTHING_SAID, SOMETHING_SAID

MISSING: Final = "not there"


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


def unequal(kafka: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The places where two plain values differ."""
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for name in kafka | ours:
            yield from unequal(kafka.get(name), ours.get(name), f"{path}.{name}" if path else name)
    elif isinstance(kafka, list) and isinstance(ours, list):
        yield from _unequal_lists(kafka, ours, path)
    elif (kafka != ours or type(kafka) is not type(ours)) and (kafka, ours) != (NOTHING_SAID, SOMETHING_SAID):
        yield path, kafka, ours


def _unequal_lists(kafka: list[Any], ours: list[Any], path: str) -> Iterator[tuple[str, Any, Any]]:
    """Rows that have a name are found by it, so that one missing row is one difference."""
    a, b = _named(kafka), _named(ours)
    if a is not None and b is not None and list(a) != list(b):
        for name in a | b:
            if name not in a or name not in b:
                yield f"{path}[{name}]", a.get(name, MISSING), b.get(name, MISSING)
            else:
                yield from unequal(a[name], b[name], f"{path}[{name}]")
        if set(a) == set(b):
            yield f"{path}, the order", list(a), list(b)
    elif len(kafka) == len(ours):
        for index, (one, other) in enumerate(zip(kafka, ours, strict=True)):
            yield from unequal(one, other, f"{path}[{index}]")
    else:
        yield path, kafka, ours


def _named(rows: list[Any]) -> dict[Any, Any] | None:
    for key in ("name", "api_key"):
        named = {row[key]: row for row in rows if isinstance(row, dict) and key in row}
        if rows and len(named) == len(rows):
            return named
    return None


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
