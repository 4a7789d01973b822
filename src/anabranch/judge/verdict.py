"""The verdict: violations by kind, each with the places that show it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation."""

    kind: str
    key: bytes | None
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {key_text(self.key)}: {self.text}"


@dataclass(slots=True)
class Verdict:
    """What was judged, and what was wrong."""

    stored: int = 0
    delivered: int = 0
    redelivered: int = 0
    """Deliveries of records that had been delivered before: allowed after a failure, and counted."""
    keys: int = 0
    violations: list[Violation] = field(default_factory=list)

    def add(self, kind: str, key: bytes | None, text: str) -> None:
        """Record a violation."""
        self.violations.append(Violation(kind, key, text))

    def lines(self) -> list[str]:
        """The verdict as text; the first violations of each kind are shown."""
        counts = Counter(one.kind for one in self.violations)
        stored = f"{self.stored:,} records of {self.keys:,} keys stored; " if self.stored else ""
        found = [f"{stored}{self.delivered:,} delivered, {self.redelivered:,} of them again"]
        for kind, count in sorted(counts.items()):
            found.append(f"{count:,} x {kind}")
            found += [f"  {one}" for one in self.violations if one.kind == kind][:SHOWN]
        return [*found, "FAILED" if counts else "PASSED: no violation"]


def key_text(key: bytes | None) -> str:
    """A record's key, for a message."""
    return "no key" if key is None else f"key {key.decode(errors='replace')}"
