"""What a door of the control plane is made of: a path, what it takes, what it answers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.control.actions import UnknownNode

WAIT_S: Final = 30.0
WAIT_MAX_S: Final = 600.0
INT32_MAX: Final = (1 << 31) - 1
BODY_BYTES_MAX: Final = 64 << 10
FILE_BYTES_MAX: Final = 256 << 20


class WaitTimedOut(Exception):
    """A wait was not over in time; the message says what was missing."""


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request, without its HTTP."""

    words: Mapping[str, str]
    """Those of the path."""
    query: Mapping[str, str]
    body: Mapping[str, Any]
    content: bytes = b""
    """The body as it is, where the route takes a file."""
    file_bytes_max: int = FILE_BYTES_MAX
    """How large a file may be, also when it is inflated."""

    @property
    def node(self) -> int:
        """The node of the path. Unknown if it is no number."""
        try:
            return int(self.words["node"])
        except ValueError:
            raise UnknownNode(f"there is no node {self.words['node']!r}") from None


Handler = Callable[[Any, ControlRequest], Coroutine[Any, Any, Any]]
"""Takes what is controlled: a cluster of ours, or a proxy."""


@dataclass(frozen=True, slots=True)
class Route:
    """One door."""

    method: str
    path: str
    summary: str
    handler: Handler
    query: Mapping[str, str] = field(default_factory=dict)
    """Word of the query -> what it means."""
    body: Mapping[str, str | Mapping[str, Any]] = field(default_factory=dict)
    """Field of the body -> its JSON type, or its schema."""
    waits: bool = False
    """Whether it does nothing by itself but wait, or ask the cluster as a client: in everybody's time, and not in that
    of the cluster, which may stand still."""
    takes_file: bool = False
    """Whether the body is a file, in place of JSON."""
    body_bytes_max: int = BODY_BYTES_MAX
    """How large the body may be, unless it is a file."""
    gives_file: bool = False
    """Whether the answer is."""


def count_of(body: Mapping[str, Any], name: str, absent: int | None = None) -> int:
    """A number of a body that fits into the field of a Kafka request. ValueError if it is none."""
    value = body.get(name, absent)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is a whole number, not {value!r}")
    if abs(value) > INT32_MAX:
        raise ValueError(f"{name} is at most {INT32_MAX}, not {value:.3g}")
    return value


def timeout_s(text: str) -> float:
    """How long a wait may take, as a request says it; ValueError if it does not."""
    try:
        found = float(text or WAIT_S)
    except ValueError:
        raise ValueError(f"timeout is in seconds, not {text!r}") from None
    if not 0 <= found <= WAIT_MAX_S:
        raise ValueError(f"timeout is 0 to {WAIT_MAX_S:g} seconds, not {text}")
    return found
