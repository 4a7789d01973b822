"""Suggests the intended name for a misspelt one, for error messages about unknown names."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

Declared = TypeVar("Declared")
_CATCH: Final = "unknown"
"""The name of the parameter with which a method catches arguments that it does not know."""


def suggest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean X?" for the nearest known name, or "there are X, Y" if none is near."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"


def suggest_arguments(cls: type[Declared]) -> type[Declared]:
    """Have the constructor and the public methods of a class suggest the names of arguments; a class decorator.

    Python does this since 3.13, but does not list the arguments if none is near. A call costs 0.1 us more. Methods that
    are called for each record take `**unknown: Never` instead, and call `refuse_unknown` if there is any.
    """
    for name, member in list(vars(cls).items()):
        public = inspect.isfunction(member) and (name == "__init__" or not name.startswith("_"))
        if public and _CATCH not in inspect.signature(member).parameters:
            setattr(cls, name, _suggesting(member, cls if name == "__init__" else member))
    return cls


def _suggesting(function: Callable[..., Any], public: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except TypeError:
            refuse_unknown(public, named)
            raise

    async def call_coroutine(*arguments: Any, **named: Any) -> Any:
        return await call(*arguments, **named)

    return functools.wraps(function)(call_coroutine if inspect.iscoroutinefunction(function) else call)


def refuse_unknown(public: Callable[..., Any], named: Mapping[str, object]) -> None:
    """Raise the TypeError of Python with a suggestion, unless all arguments are known."""
    if dataclasses.is_dataclass(public):
        known = [field.name for field in dataclasses.fields(public) if field.init]
    else:
        parameters = inspect.signature(public).parameters
        if any(one.kind is one.VAR_KEYWORD and one.name != _CATCH for one in parameters.values()):
            return
        known = [name for name in parameters if name not in ("self", _CATCH)]
    for name in named:
        if name not in known:
            hint = suggest(name, known) if known else "it takes none"
            raise TypeError(f"{public.__qualname__}() got an unexpected keyword argument {name!r}; {hint}") from None
