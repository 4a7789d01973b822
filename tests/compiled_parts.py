"""Skips tests that replace parts of compiled modules (`setup.py`).

A compiled function calls another by its address, so that who puts something of his own in its place is not asked; and
what stands in for a compiled class is refused. Such tests are about the sources, which have the same logic. Each skip
names what would have been replaced.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest


def is_compiled(module: str) -> bool:
    """Whether this module, by its full name, is imported from machine code."""
    place = getattr(sys.modules.get(module) or importlib.import_module(module), "__file__", None) or ""
    return module.startswith("anabranch.") and not place.endswith(".py")


def home_of(target: Any) -> str:
    """The module of a module, a class, or an object."""
    if isinstance(target, ModuleType):
        return target.__name__
    return str(getattr(target if isinstance(target, type) else type(target), "__module__", ""))


def heeding_compiled_parts(patch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Return a monkeypatch that skips a test which replaces a part of a compiled module."""
    replace: Callable[..., None] = patch.setattr

    def heed(target: Any, name: Any, *others: Any, **more: Any) -> None:
        module = home_of(pkgutil.resolve_name(target.rpartition(".")[0]) if isinstance(target, str) else target)
        if module.startswith("anabranch.") and is_compiled(module):
            pytest.skip(f"COMPILED: {module} does not look at what would replace its {name}")
        replace(target, name, *others, **more)

    @contextlib.contextmanager
    def within() -> Iterator[pytest.MonkeyPatch]:
        with pytest.MonkeyPatch.context() as inner:
            yield heeding_compiled_parts(inner)

    patch.setattr = heed  # type: ignore[method-assign]
    patch.context = within  # type: ignore[method-assign]
    return patch


def stands_in_for(part: str) -> pytest.MarkDecorator:
    """Marks tests that give something of their own to a module, which takes nothing else where it is compiled."""
    return pytest.mark.skipif(is_compiled(part), reason=f"COMPILED: {part} takes nothing that stands in for its own")
