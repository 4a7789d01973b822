"""Suggests the intended name for a misspelt one, for error messages about unknown names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean X?" for the nearest known name, or "there are X, Y" if none is near."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"
