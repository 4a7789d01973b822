"""Classes with slots, cheap to import: like `dataclass(slots=True)` at an eighth of its cost.

    @value      immutable, like `dataclass(frozen=True, slots=True)`
    @slotted    mutable, like `dataclass(slots=True)`

`dataclass` compiles up to six methods for each class when its module is imported, half a millisecond in all. A node has
some two hundred such classes, and never instantiates most of them. Here a class gets its constructor, equality and hash
when they are first called; the rest is shared. Its behaviour is that of a `dataclass`, for type checkers too;
`dataclasses.fields` and `replace` work. Compiled modules (setup.py) keep `dataclass`, which mypyc knows.
"""

from __future__ import annotations

import dataclasses
import reprlib
import typing
from collections.abc import Callable
from typing import Any, Final, TypeVar, overload

Declared = TypeVar("Declared")

FRESH: Final = object()
"""The default of a field that is created for each object."""


@overload
def value(cls: type[Declared], /) -> type[Declared]: ...


@overload
def value(*, kw_only: bool = False) -> Callable[[type[Declared]], type[Declared]]: ...


@typing.dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def value(cls: type[Any] | None = None, /, *, kw_only: bool = False) -> Any:
    """Make a class an immutable value with slots."""

    def make(declared: type[Any]) -> type[Any]:
        made = _make(declared, kw_only=kw_only, eq=True)
        made.__hash__ = _written_when_called(made, "__hash__", _hash_source)
        for name, shared in _FROZEN.items():
            setattr(made, name, shared)
        return made

    return make if cls is None else make(cls)


@overload
def slotted(cls: type[Declared], /) -> type[Declared]: ...


@overload
def slotted(*, kw_only: bool = False, eq: bool = True) -> Callable[[type[Declared]], type[Declared]]: ...


@typing.dataclass_transform(field_specifiers=(dataclasses.field,))
def slotted(cls: type[Any] | None = None, /, *, kw_only: bool = False, eq: bool = True) -> Any:
    """Make a class a mutable one with slots. `eq`: whether objects with equal fields are equal, and have no hash."""

    def make(declared: type[Any]) -> type[Any]:
        made = _make(declared, kw_only=kw_only, eq=eq)
        if eq:
            made.__hash__ = None  # type: ignore[assignment]
        return made

    return make if cls is None else make(cls)


def _make(cls: type[Any], *, kw_only: bool, eq: bool) -> type[Any]:
    made = with_slots(cls, kw_only=kw_only)
    written = {"__init__": _init_source, "__eq__": _eq_source} if eq else {"__init__": _init_source}
    for name, write in written.items():
        setattr(made, name, _written_when_called(made, name, write))
    if "__repr__" not in vars(cls):
        made.__repr__ = _repr  # type: ignore[assignment]
    return made


def with_slots(cls: type[Any], *, kw_only: bool) -> type[Any]:
    """Make a class a dataclass with slots, without methods.

    `dataclass` parses each annotation in text form three times, in search of ClassVar, InitVar and KW_ONLY. It gets the
    text of these only. Classes of compiled modules have types in place of text, which it does not parse.
    """
    if cls.__doc__ is None:
        cls.__doc__ = f"{cls.__name__}(...)"  # otherwise `dataclass` computes a signature for it
    hints = vars(cls).get("__annotations__", {})
    cls.__annotations__ = {name: object if _is_text_of_a_field(hint) else hint for name, hint in hints.items()}
    made: type[Any] = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
    made.__annotations__ = hints
    for field in dataclasses.fields(made):
        field.type = hints.get(field.name, field.type)
    return made


def _is_text_of_a_field(hint: Any) -> bool:
    return isinstance(hint, str) and "Var" not in hint and "KW_ONLY" not in hint


def _written_when_called(
    cls: type[Any], name: str, write: Callable[[type[Any], dict[str, Any]], str]
) -> Callable[..., Any]:
    """Return a method that replaces itself by the one that `write` generates. A decorated one stays, and calls it."""
    method: Callable[..., Any] | None = None

    def first_call(self: Any, /, *arguments: Any, **named: Any) -> Any:
        nonlocal method
        if method is None:
            scope: dict[str, Any] = {"store": object.__setattr__, "FRESH": FRESH}
            exec(write(cls, scope), scope)
            method = scope[name]
            method.__qualname__ = f"{cls.__qualname__}.{name}"
            if getattr(cls, name) is first_call:
                setattr(cls, name, method)
        return method(self, *arguments, **named)

    return first_call


def _init_source(cls: type[Any], scope: dict[str, Any]) -> str:
    positional: list[str] = []
    named: list[str] = []
    body: list[str] = []
    is_frozen = "__setattr__" in vars(cls)
    for field in dataclasses.fields(cls):
        name = source = parameter = field.name
        if field.default_factory is not dataclasses.MISSING:
            scope[f"make_{name}"] = field.default_factory
            parameter, source = f"{name}=FRESH", f"make_{name}() if {name} is FRESH else {name}"
        elif field.default is not dataclasses.MISSING:
            scope[f"default_{name}"] = field.default
            parameter = f"{name}=default_{name}"
        (named if field.kw_only else positional).append(parameter)
        body.append(f"    store(self, {name!r}, {source})\n" if is_frozen else f"    self.{name} = {source}\n")
    if hasattr(cls, "__post_init__"):
        body.append("    self.__post_init__()\n")
    parameters = ["self", *positional, *(["*", *named] if named else [])]
    return f"def __init__({', '.join(parameters)}):\n" + ("".join(body) or "    pass\n")


def _eq_source(cls: type[Any], _: dict[str, Any]) -> str:
    return (
        "def __eq__(self, other):\n"
        "    if other.__class__ is not self.__class__:\n"
        "        return NotImplemented\n"
        f"    return {_tuple_of(cls, 'self')} == {_tuple_of(cls, 'other')}\n"
    )


def _hash_source(cls: type[Any], _: dict[str, Any]) -> str:
    hashed = [one for one in dataclasses.fields(cls) if (one.compare if one.hash is None else one.hash)]
    return f"def __hash__(self):\n    return hash(({''.join(f'self.{one.name}, ' for one in hashed)}))\n"


def _tuple_of(cls: type[Any], name: str) -> str:
    return "(" + "".join(f"{name}.{field.name}, " for field in dataclasses.fields(cls) if field.compare) + ")"


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    fields = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr)
    return f"{type(self).__qualname__}({fields})"


def _refuse_to_set(self: Any, name: str, _: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, content in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, content)


_FROZEN: Final[dict[str, Callable[..., Any]]] = {
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__getstate__": _state,
    "__setstate__": _restore,
}
