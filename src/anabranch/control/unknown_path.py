"""Describes a path that no route has, with the path that was probably meant. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Final

CHARS_SHOWN: Final = 200
CHARS_COMPARED: Final = 100
"""A comparison's time grows with the square of the length."""
VERSION: Final = "/v1"


def unknown_path(path: str, templates: Iterable[str]) -> str:
    """The message for an unknown path; `templates` are the known paths with parameters in braces."""
    known = dict.fromkeys(one for template in templates for one in _fill(template, path))
    close = difflib.get_close_matches(path.rstrip("/")[:CHARS_COMPARED], known, n=1)
    meant = f"did you mean {close[0]}?" if close else "/docs and /v1/openapi.json list the paths"
    return f"there is no path {path[:CHARS_SHOWN]}; {meant}"


def _fill(template: str, path: str) -> Iterator[str]:
    """A template with the path's own words for its parameters, also if the path lacks the version."""
    for whole in (path,) if path.startswith(f"{VERSION}/") else (path, VERSION + path):
        words, parts = whole.rstrip("/").split("/"), template.split("/")
        if len(words) == len(parts):
            yield "/".join(word if part.startswith("{") else part for word, part in zip(words, parts, strict=True))
    yield template
