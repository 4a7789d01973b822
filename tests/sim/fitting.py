"""Checks that a planted bug fits: its replacement must have the product's signature.

A replacement whose signature has stayed behind fails in the middle of its own schedules, where `TypeError` looks like a
bug that was noticed. So it is compared when it is planted, and not planted if it does not fit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import MemberDescriptorType
from typing import Any

_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Misfit(Exception):
    """A replacement takes something else than what it replaces."""


def check_fit(name: str, original: Any, value: Any) -> None:
    """Raise `Misfit` if a caller of the original would fail with the replacement."""
    if isinstance(original, type) and isinstance(value, type):
        return  # an exception that nobody raises
    if _kind(original) != _kind(value):
        raise Misfit(f"{name} is a {_kind(original)}, and what replaces it a {_kind(value)}")
    if isinstance(original, MemberDescriptorType):
        return
    former, latter = _function(original), _function(value)
    if _is_awaited(former) and not inspect.iscoroutinefunction(latter):
        raise Misfit(f"{name} is awaited, and what replaces it is not")
    if inspect.iscoroutinefunction(latter) and not _is_awaited(former):
        raise Misfit(f"{name} is not awaited, and what replaces it has to be")
    for positional, named in _calls(inspect.signature(former)):
        try:
            inspect.signature(latter).bind(*positional, **named)
        except TypeError as error:
            takes = f"{name}{inspect.signature(former)}, replaced by {inspect.signature(latter)}"
            raise Misfit(f"{takes}: {error}") from None


def _calls(signature: inspect.Signature) -> list[tuple[list[None], dict[str, None]]]:
    takes = [one for one in signature.parameters.values() if one.kind not in _OPEN]
    calls = []
    for given in (takes, [one for one in takes if one.default is one.empty]):
        placed = [one for one in given if one.kind != one.KEYWORD_ONLY]
        only_named = {one.name: None for one in given if one.kind == one.KEYWORD_ONLY}
        calls.append(([None] * len(placed), only_named))
        calls.append(([None] * len(placed[:1]), only_named | {one.name: None for one in placed[1:]}))
    return calls


def _kind(value: Any) -> str:
    if isinstance(value, property | MemberDescriptorType):
        return "property"
    return type(value).__name__ if isinstance(value, classmethod | staticmethod) else "function"


def _function(value: Any) -> Callable[..., Any]:
    if isinstance(value, property):
        assert value.fget is not None
        return value.fget
    function: Callable[..., Any] = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    return function


def _is_awaited(function: Callable[..., Any]) -> bool:
    returned = str(inspect.signature(function).return_annotation)
    return inspect.iscoroutinefunction(function) or returned.startswith(("Awaitable", "Coroutine"))
