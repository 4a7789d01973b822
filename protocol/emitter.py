"""Builds Python source: lines, indentation, fresh names, and the message field of each line.

Both generators write through an `Emitter`. It fuses adjacent fixed-width values into one `struct.Struct`, keeps local
names unique and readable, and records for every line which field of the message it handles. That table costs nothing
until a failure: then the traceback's line number and the loop counters in the frame give the path of the invalid field,
as in a debugger (`compiler.explain`).
"""

from __future__ import annotations

import contextlib
import keyword
import struct
from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final

from anabranch.protocol.values import slotted, value
from anabranch.protocol.wire import WireField


@value
class Place:
    """The field of a generated line: a path with loop counters, and the widths of the values that it reads."""

    path: str
    """`topics[{topics_at}].partitions[{partitions_at}]`: filled in from the locals of the failing frame."""
    widths: tuple[tuple[str, int], ...] = ()
    """Name and size of each value of a fused read, in wire order."""


_RESERVED: Final = frozenset({*keyword.kwlist, "bytes", "len", "list", "memoryview", "range"})


@slotted
class Emitter:
    """Collects one generated function."""

    namespace: dict[str, Any]
    lines: list[str] = field(default_factory=list)
    places: dict[int, Place] = field(default_factory=dict)
    path: str = ""
    _depth: int = 0
    _here: Place = Place("")
    _names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._names |= self.namespace.keys() | _RESERVED

    def line(self, text: str, place: Place | None = None) -> None:
        """Write one line of source; errors raised there belong to `place`, or else to the current path."""
        self.lines.append("    " * self._depth + text)
        if place is None:
            place = self._here = self._here if self._here.path == self.path else Place(self.path)
        self.places[len(self.lines)] = place

    @contextlib.contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write an indented block under `head`."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextlib.contextmanager
    def inside(self, part: str) -> Iterator[None]:
        """Write lines one step deeper in the message."""
        outer, self.path = self.path, join_path(self.path, part)
        yield
        self.path = outer

    def fresh(self, base: str) -> str:
        """Return a local name that is unused in this function."""
        name, number = base, 2
        while name in self._names:
            name, number = f"{base}_{number}", number + 1
        self._names.add(name)
        return name

    def bind(self, name: str, value: Any) -> str:
        """Return the name of a value in the generated code; one value per name."""
        known = self.namespace.setdefault(name, value)
        if known is not value and known != value:
            return self.bind(name + "_", value)
        self._names.add(name)
        return name

    def packer(self, formats: str) -> str:
        """Return the name of the `pack` of a big-endian struct."""
        name = "pack_" + formats.replace("?", "t")
        if name not in self.namespace:
            self.bind(name, struct.Struct(">" + formats).pack)
        return name

    def unpacker(self, formats: str) -> str:
        """Return the name of the `unpack_from` of a big-endian struct."""
        name = "read_" + formats.replace("?", "t")
        if name not in self.namespace:
            self.bind(name, struct.Struct(">" + formats).unpack_from)
        return name

    def source(self) -> str:
        """Return the finished text."""
        return "\n".join(self.lines) + "\n"


def join_path(path: str, part: str) -> str:
    """Join a path: `topics[0]` and `name` make `topics[0].name`; an index needs no dot."""
    return part if not path else path + part if part.startswith("[") else f"{path}.{part}"


def singular(name: str) -> str:
    """Return the singular of a list's name: partitions -> partition."""
    for ending, replacement in (("ies", "y"), ("data", "datum"), ("sses", "ss"), ("s", "")):
        if name.endswith(ending) and not name.endswith(("ss", "status")):
            return name.removesuffix(ending) + replacement
    return name + "_item"


def minimum_size(fields: tuple[WireField, ...], version: int, flexible: bool, of: Any) -> int:
    """Return a struct's minimum size: a count is too large if the remaining bytes cannot hold so many.

    `of` is `fields_of`, passed in so that this module does not depend on the declarations.
    """
    total = 1 if flexible else 0
    for item in fields:
        if not item.exists(version) or item.tag is not None:
            continue
        total += least_bytes(item, version, flexible, of)
    return total


def least_bytes(item: WireField, version: int, flexible: bool, of: Any) -> int:
    """Return the minimum size of one field."""
    if item.is_array:
        return 1 if flexible else 4
    if item.struct is not None:
        return 1 if item.may_be_null(version) else minimum_size(of(item.struct), version, flexible, of)
    return least_bytes_of_kind(item, flexible)


def least_bytes_of_kind(item: WireField, flexible: bool) -> int:
    """Return the minimum size of one value of the field's kind, which may be an element of an array."""
    assert item.kind is not None
    if item.kind.fixed:
        return struct.calcsize(">" + item.kind.value)
    if flexible:
        return 1
    return 2 if item.kind.value == "text" else 4
