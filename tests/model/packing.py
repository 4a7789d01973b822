"""States packed into integers, and functions of states remembered by what they read.

A state has slots: its fields, and each element of a field that is a row (one element for each partition or member).
Each value of a slot has a number, and a packed state is these numbers side by side. So it is exact: different states
are different integers.

A step of one process reads a few slots and changes a few. `Memo` runs it on a `View`, which notes the slots that it
reads, and remembers its result for all states with the same values there. The result is the difference between the
packed states after and before. So most steps of a search are a look-up and an addition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

Item = TypeVar("Item")
Result = TypeVar("Result")

INT_BITS: Final = 8
BITS: Final = 20


class Slot:
    """The values of one slot, and the bits of their numbers in a packed state."""

    __slots__ = ("bits", "mask", "numbers", "shift", "values")

    def __init__(self, shift: int, bits: int) -> None:
        self.shift, self.bits, self.mask = shift, bits, ((1 << bits) - 1) << shift
        self.numbers: dict[object, int] = {}
        self.values: list[object] = []

    def number(self, value: object) -> int:
        """The number of a value."""
        known = self.numbers.get(value)
        if known is None:
            known = len(self.values)
            if known >> self.bits:
                raise OverflowError(f"a slot has more than {known} values, such as {value!r}: give it more bits")
            self.numbers[value] = known
            self.values.append(value)
        return known

    def value(self, packed: int) -> object:
        """The value in a packed state."""
        return self.values[(packed & self.mask) >> self.shift]


class Packing:
    """The slots of the states of one model; `rows` are the fields with a slot for each element."""

    def __init__(self, initial: NamedTuple, rows: Collection[str]) -> None:
        self.type: Callable[..., Any] = type(initial)
        self.rows = frozenset(rows)
        self.slots: list[Slot] = []
        self.fields: dict[str, range] = {}
        shift = 0
        for name, value in initial._asdict().items():
            begin = len(self.slots)
            for item in value if name in self.rows else (value,):
                bits = INT_BITS if isinstance(item, int) else BITS
                self.slots.append(Slot(shift, bits))
                shift += bits
            self.fields[name] = range(begin, len(self.slots))
        if unknown := self.rows - set(self.fields):
            raise ValueError(f"{type(initial).__name__} has no field {sorted(unknown)}")

    def mask(self, fields: Collection[str]) -> int:
        """The bits of these fields."""
        return sum(self.slots[place].mask for name in fields for place in self.fields[name])

    def pack(self, state: NamedTuple) -> int:
        """The integer of a state."""
        packed = 0
        for name, value in state._asdict().items():
            for place, item in zip(self.fields[name], value if name in self.rows else (value,), strict=True):
                slot = self.slots[place]
                packed |= slot.number(item) << slot.shift
        return packed

    def unpack(self, packed: int) -> Any:
        """The state of an integer."""
        values: dict[str, object] = {}
        for name, places in self.fields.items():
            items = tuple(self.slots[place].value(packed) for place in places)
            values[name] = items if name in self.rows else items[0]
        return self.type(**values)


class View:
    """A state that notes which slots are read. Models use it like their own named tuple."""

    __slots__ = ("_changes", "_packed", "_packing", "_read")

    def __init__(self, packing: Packing, packed: int, read: set[int], changes: dict[str, object] | None = None) -> None:
        self._packing, self._packed, self._read, self._changes = packing, packed, read, changes or {}

    def __getattr__(self, name: str) -> Any:
        if name in self._changes:
            return self._changes[name]
        places = self._packing.fields.get(name)
        if places is None:
            raise AttributeError(f"a state has no field {name}")
        return Row(self, places, {}) if name in self._packing.rows else self.read(places[0])

    def _replace(self, **changes: object) -> View:
        if unknown := changes.keys() - self._packing.fields.keys():
            raise ValueError(f"a state has no field {sorted(unknown)}")
        return View(self._packing, self._packed, self._read, {**self._changes, **changes})

    def read(self, place: int) -> Any:
        """The value of a slot before any change."""
        self._read.add(place)
        return self._packing.slots[place].value(self._packed)

    def difference(self) -> int:
        """What has to be added to the packed state for the changes."""
        difference = 0
        for name, value in self._changes.items():
            places = self._packing.fields[name]
            changed: Iterator[tuple[int, object]] | list[tuple[int, object]]
            if isinstance(value, Row) and value.places == places:
                changed = list(value.changes.items())
            elif name in self._packing.rows:
                changed = list(zip(places, cast("tuple[object, ...]", value), strict=True))
            else:
                changed = [(places[0], value)]
            for place, item in changed:
                slot = self._packing.slots[place]
                self._read.add(place)
                difference += (slot.number(item) << slot.shift) - (self._packed & slot.mask)
        return difference


class Row:
    """A field with a slot for each element. Models use it like a tuple."""

    __slots__ = ("_view", "changes", "places")

    def __init__(self, view: View, places: range, changes: dict[int, object]) -> None:
        self._view, self.places, self.changes = view, places, changes

    def _item(self, place: int) -> Any:
        return self.changes[place] if place in self.changes else self._view.read(place)

    def __getitem__(self, index: int | slice) -> Any:
        places = self.places[index]
        return self._item(places) if isinstance(places, int) else tuple(map(self._item, places))

    def __iter__(self) -> Iterator[Any]:
        return map(self._item, self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, Row) else other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def replaced(self, index: int, value: object) -> Row:
        """The row with one element changed."""
        return Row(self._view, self.places, {**self.changes, self.places[index]: value})


def replaced(values: tuple[Item, ...], index: int, value: Item) -> tuple[Item, ...]:
    """The tuple with one element changed."""
    row: object = values
    if isinstance(row, Row):
        return cast("tuple[Item, ...]", row.replaced(index, value))
    return (*values[:index], value, *values[index + 1 :])


class Memo(Generic[Result]):
    """The results of a function of states, by the slots that it reads. It must depend on nothing else.

    `mask` only grows. Results from before remain right: they depend on fewer slots.
    """

    def __init__(self, packing: Packing, function: Callable[[View], Result]) -> None:
        self._packing, self._function = packing, function
        self.mask = 0
        self.known: dict[int, Result] = {}
        """Results by the packed states, in which only the bits of `mask` count."""

    def __call__(self, packed: int) -> Result:
        """Run the function, and remember the result."""
        read: set[int] = set()
        result = self._function(View(self._packing, packed, read))
        for place in read:
            self.mask |= self._packing.slots[place].mask
        self.known[packed & self.mask] = result
        return result
