"""Classes made by `value` and `slotted` behave like dataclasses of the same declaration."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

import pytest

from anabranch.protocol.values import slotted, value


@value
class Point:
    """Two positional fields, one default of each kind."""

    x: int
    y: int = 2
    seen: list[int] = field(default_factory=list, compare=False)
    note: str = field(default="", repr=False)
    why: str = field(default="", hash=False)


@value(kw_only=True)
class Named:
    """Named fields only; a default may come first."""

    size: int = 1
    name: str


@value
class Empty:
    """Nothing at all."""


@value
class Checked:
    """With a check of its own."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError("negative")

    @property
    def twice(self) -> int:
        return 2 * self.count


@dataclass(frozen=True, slots=True)
class Reference:
    x: int
    y: int = 2
    seen: list[int] = field(default_factory=list, compare=False)
    note: str = field(default="", repr=False)
    why: str = field(default="", hash=False)


@pytest.mark.parametrize("arguments", [(1,), (1, 5), (1, 5, [3]), (1, 5, [3], "note")])
def test_value_behaves_like_a_frozen_dataclass(arguments: tuple[Any, ...]) -> None:
    mine, theirs = Point(*arguments), Reference(*arguments)
    assert dataclasses.asdict(mine) == dataclasses.asdict(theirs)
    assert repr(mine) == repr(theirs).replace("Reference", "Point")
    assert hash(mine) == hash(theirs)
    assert mine == Point(*arguments)
    assert mine != theirs
    assert (mine == Point(9)) is False
    assert mine != Point(arguments[0], 77)
    assert mine != dataclasses.replace(mine, why="told")
    assert hash(mine) == hash(dataclasses.replace(mine, why="told")), "a field that is not hashed"
    assert mine == dataclasses.replace(mine, seen=[1, 2, 3])
    assert len({mine, Point(*arguments)}) == 1


@pytest.mark.parametrize("make", [value, slotted])
def test_annotations_may_be_types(make: Any) -> None:
    """As mypyc makes them in a compiled module, with or without `from __future__ import annotations`."""
    declared = type("Declared", (), {"__annotations__": {"x": int, "kind": ClassVar[str], "y": "int"}, "kind": "a"})
    made = make(declared)
    assert made(1, 2) == made(1, y=2) != made(1, 3)
    assert [(one.name, one.type) for one in dataclasses.fields(made)] == [("x", int), ("y", "int")]
    assert made.__annotations__ == {"x": int, "kind": ClassVar[str], "y": "int"}


def test_methods_are_generated_per_class() -> None:
    assert Point(1) != Checked(1)
    assert repr(Checked(1)) == "Checked(count=1)"
    assert Checked(1) == Checked(1) != Checked(2)
    assert Empty() == Empty()
    assert repr(Empty()) == "Empty()"
    assert hash(Empty()) == hash(())


def test_fresh_defaults_are_not_shared() -> None:
    assert Point(1).seen is not Point(1).seen


@pytest.mark.parametrize(
    "call", [lambda: Point(), lambda: Point(1, 2, [], "", "", 6), lambda: Point(1, z=1), lambda: Named("a")]
)  # type: ignore[call-arg, misc]
def test_wrong_arguments_are_refused(call: Any) -> None:
    with pytest.raises(TypeError):
        call()


def test_keyword_only_fields_are_compared_and_not_positional() -> None:
    assert Named(name="a") == Named(size=1, name="a")
    assert Named.__match_args__ == ()  # type: ignore[attr-defined]


def test_value_is_immutable() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        point.other = 2  # type: ignore[attr-defined]
    assert not hasattr(point, "__dict__")
    assert point == Point(1)


def test_checks_and_properties_of_class_work() -> None:
    assert Checked(3).twice == 6
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)
    with pytest.raises(ValueError, match="negative"):
        dataclasses.replace(Checked(1), count=-1)


def test_value_matches_by_position() -> None:
    match Point(1, 5):
        case Point(x, y):
            assert (x, y) == (1, 5)


def test_value_is_copied_and_pickled() -> None:
    point = Point(1, 5, [3], "note")
    for twin in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert dataclasses.asdict(twin) == dataclasses.asdict(point)
    assert copy.deepcopy(point).seen is not point.seen


@slotted
class State:
    """Mutable, with a field that is not compared."""

    x: int
    seen: list[int] = field(default_factory=list)
    note: str = field(default="", compare=False)


@slotted(eq=False, kw_only=True)
class Node:
    """Compared by identity."""

    size: int = 1
    parent: Node | None
    children: list[Node] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<node of {self.size}>"


@dataclass(slots=True)
class StateReference:
    x: int
    seen: list[int] = field(default_factory=list)
    note: str = field(default="", compare=False)


@pytest.mark.parametrize("arguments", [(1,), (1, [3]), (1, [3], "note")])
def test_slotted_class_behaves_like_a_dataclass_with_slots(arguments: tuple[Any, ...]) -> None:
    mine, theirs = State(*arguments), StateReference(*arguments)
    assert dataclasses.asdict(mine) == dataclasses.asdict(theirs)
    assert repr(mine) == repr(theirs).replace("StateReference", "State")
    assert mine == State(*arguments) != State(9)
    assert mine == dataclasses.replace(mine, note="another") != theirs
    mine.x = 7
    assert mine != State(*arguments)
    for twin in (copy.copy(mine), copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        assert twin == mine
    with pytest.raises(TypeError, match="unhashable"):
        hash(mine)
    with pytest.raises(AttributeError):
        mine.other = 2  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        State()  # type: ignore[call-arg]
    assert State(1).seen is not State(1).seen


def test_slotted_class_without_equality_is_compared_by_identity() -> None:
    root, twin = Node(parent=None), Node(parent=None)
    assert root != twin and len({root, twin}) == 2
    assert repr(root) == "<node of 1>", "its own"
    with pytest.raises(TypeError):
        Node(1, None)  # type: ignore[misc]


def test_fields_keep_their_annotations() -> None:
    @slotted
    class Counted:
        limit: ClassVar[int] = 3
        x: int
        _: KW_ONLY
        y: list[int] | None = None

    @slotted
    class More(Counted):
        z: str = ""

    assert [(one.name, one.type) for one in dataclasses.fields(Counted)] == [("x", "int"), ("y", "list[int] | None")]
    assert [(one.name, one.type, one.kw_only) for one in dataclasses.fields(More)][1:] == [
        ("y", "list[int] | None", True),
        ("z", "str", False),
    ]
    assert (Counted(1).limit, More(1, "z", y=[2]).y, More(1, "z").z) == (3, [2], "z")
    assert Counted.__annotations__["y"] == "list[int] | None"


def test_cycle_has_a_repr() -> None:
    state = State(1)
    state.seen.append(state)  # type: ignore[arg-type]
    assert repr(state) == "State(x=1, seen=[...], note='')"
