"""`anabranch.testing` exports the type of each row that its public methods take or return."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

import anabranch.testing

OF_CLIENTS = {"SecurityArguments"}
"""What type checkers unpack, for arguments that `anabranch.Admin` has too."""


def typed_dicts(hint: Any) -> Iterator[type]:
    """The TypedDicts of an annotation, with those of their fields."""
    if typing.is_typeddict(hint):
        yield hint
        if hint.__name__ not in OF_CLIENTS:
            for field in typing.get_type_hints(hint).values():
                yield from typed_dicts(field)
    for part in typing.get_args(hint):
        yield from typed_dicts(part)


def names_of(module: types.ModuleType) -> dict[str, Any]:
    """The names of a module, also those that it imports for type checkers only."""
    names = dict(vars(module))
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module:
            home = importlib.import_module(node.module)
            names |= {one.asname or one.name: getattr(home, one.name) for one in node.names}
    return names


def methods(public: type) -> Iterator[Any]:
    for name, member in vars(public).items():
        found = member.fget if isinstance(member, property) else inspect.unwrap(member) if callable(member) else None
        if inspect.isfunction(found) and (name == "__call__" or not name.startswith("_")):
            yield found


def test_types_of_all_rows_of_public_methods_are_exported() -> None:
    used = {
        found.__name__
        for name in anabranch.testing.__all__
        for method in methods(getattr(anabranch.testing, name))
        for hint in typing.get_type_hints(method, names_of(sys.modules[method.__module__])).values()
        for found in typed_dicts(hint)
    }
    assert {"NodeRow", "TopicRow", "GroupRow", "EventRow", "RuleRow", "ExchangeRow"} <= used
    exported = {name for name in anabranch.testing.__all__ if typing.is_typeddict(getattr(anabranch.testing, name))}
    assert exported == used - OF_CLIENTS
