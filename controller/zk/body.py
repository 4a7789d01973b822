"""Parses the JSON body of a znode with typed fields: errors name the path, the field, and its value.

Another program wrote a malformed body: the reader of the znode decides whether to continue without it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

Pairs = tuple[tuple[int, int], ...]


class MalformedZnode(ValueError):
    """A znode's body is invalid."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class Body:
    """A JSON object with its path: typed reads whose errors name both."""

    def __init__(self, path: str, fields: Any, prefix: str = "") -> None:
        self.path = path
        self.prefix = prefix
        if not isinstance(fields, dict):
            raise self.wrong(prefix.rstrip(".") or "the body", "a JSON object", fields)
        self.fields: dict[str, Any] = fields

    @classmethod
    def parse(cls, path: str, data: bytes) -> Body:
        """Parse the body of a znode."""
        try:
            return cls(path, json.loads(data))
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise MalformedZnode(path, f"not JSON ({error}): {data[:80]!r}") from None

    def wrong(self, name: str, expected: str, value: object) -> MalformedZnode:
        """Return the error for an invalid field."""
        return MalformedZnode(self.path, f"{name} should be {expected}, not {json.dumps(value, default=repr)[:80]}")

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an integer; required without a default."""
        value = self.fields.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(self.prefix + name, "an integer", value)
        return value

    def long_text(self, name: str, default: int | None = None) -> int:
        """Return an integer that Kafka writes as a string."""
        value = self.fields.get(name, default)
        try:
            return int(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise self.wrong(self.prefix + name, "an integer in a string", value) from None

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string; required without a default."""
        value = self.fields.get(name, default)
        if not isinstance(value, str):
            raise self.wrong(self.prefix + name, "a string", value)
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """Return a boolean."""
        value = self.fields.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(self.prefix + name, "true or false", value)
        return value

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a required list of integers."""
        return self._integers(self.prefix + name, self.fields.get(name))

    def _integers(self, name: str, value: object) -> tuple[int, ...]:
        if not isinstance(value, list) or any(type(item) is not int for item in value):
            raise self.wrong(name, "a list of integers", value)
        return tuple(value)

    def rising_pairs(self, name: str) -> Pairs:
        """Return a list of pairs of integers whose first ones rise, empty if absent."""
        value = self.fields.get(name, [])
        rows = [self._integers(self.prefix + name, row) for row in value] if isinstance(value, list) else [(0,)]
        if any(len(row) != 2 for row in rows):
            raise self.wrong(self.prefix + name, "a list of pairs of integers", value)
        if any(earlier[0] >= later[0] for earlier, later in itertools.pairwise(rows)):
            raise self.wrong(self.prefix + name, "a list of increasing pairs", value)
        return tuple((row[0], row[1]) for row in rows)

    def section(self, name: str) -> Body | None:
        """Return a nested object, None if absent."""
        value = self.fields.get(name)
        return None if value is None else Body(self.path, value, f"{self.prefix}{name}.")

    def indexes(self, name: str) -> dict[int, str]:
        """Return the keys of a nested object that are partition numbers, with their spelling; empty if absent."""
        section = self.section(name)
        numbers: dict[int, str] = {}
        for key in section.fields if section else ():
            if not key.isdecimal():
                raise self.wrong(f"{self.prefix}{name}", "keyed by partition numbers", key)
            numbers[int(key)] = key
        return numbers

    def replicas(self, name: str) -> dict[int, tuple[int, ...]]:
        """Return {partition: list of broker ids} by rising partition, empty if absent."""
        section = self.section(name)
        return {index: section.integers(key) for index, key in sorted(self.indexes(name).items())} if section else {}

    def epochs(self, name: str) -> Pairs:
        """Return {partition: leader epoch} as pairs by rising partition, empty if absent."""
        section = self.section(name)
        if section is None:
            return ()
        return tuple((index, section.integer(key)) for index, key in sorted(self.indexes(name).items()))


def dump(fields: Mapping[str, Any]) -> bytes:
    """Encode compact JSON."""
    return json.dumps(fields, separators=(",", ":")).encode()
