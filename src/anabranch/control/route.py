"""A route of the control plane: its path, parameters, body and response."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

from anabranch.control.actions import UnknownNode

WAIT_S: Final = 30.0
WAIT_MAX_S: Final = 600.0
INT32_MAX: Final = (1 << 31) - 1
TIMEOUT: Final = {"timeout": f"how long to wait, in seconds; {WAIT_S:g} if left out"}
BODY_BYTES_MAX: Final = 64 << 10
FILE_BYTES_MAX: Final = 256 << 20


class Done(TypedDict):
    """An object without fields: the request is done."""


class NoQuery(TypedDict):
    """No query parameter."""


class WaitTimedOut(Exception):
    """A wait timed out; the message names the unmet condition."""


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request, independent of HTTP."""

    words: Mapping[str, str]
    """The parameters of the path."""
    query: Mapping[str, str]
    body: Mapping[str, Any]
    content: bytes = b""
    """The raw body, if the route takes a file."""
    file_bytes_max: int = FILE_BYTES_MAX
    """The maximum size of a file, also after inflation."""

    @property
    def node(self) -> int:
        """The node id in the path. Raises UnknownNode if it is not a number."""
        try:
            return int(self.words["node"])
        except ValueError:
            raise UnknownNode(f"there is no node {self.words['node']!r}") from None


Handler = Callable[[Any, ControlRequest], Coroutine[Any, Any, Any]]
"""Takes the controlled object (a cluster, a proxy or a node) and the request."""
Stream = Callable[[Any, ControlRequest], AsyncGenerator[tuple[str, Any], None]]
"""Takes the same; returns the kinds and rows of server-sent events."""


@dataclass(frozen=True, slots=True)
class Route:
    """One route. The return annotation of its handler is the type of the response."""

    method: str
    path: str
    summary: str
    handler: Handler
    query: type = NoQuery
    """A TypedDict of the query parameters."""
    query_help: Mapping[str, str] = field(default_factory=dict)
    """Query parameter -> its meaning, unless its annotation says it."""
    checks_query: bool = False
    """Whether the handler refuses unknown query parameters itself."""
    body: type | None = None
    """A TypedDict of the body's fields."""
    waits: bool = False
    """Whether the handler only waits, or acts as a client: it runs in real time, as the cluster's clock may be stopped.
    """
    takes_file: bool = False
    """Whether the body is a file instead of JSON."""
    body_bytes_max: int = BODY_BYTES_MAX
    """The maximum size of the body, unless it is a file."""
    gives_file: bool = False
    """Whether the response is a file."""
    stream: Stream | None = None
    """Also sends server-sent events, for `Accept: text/event-stream`."""


def count_of(body: Mapping[str, Any], name: str, absent: int | None = None) -> int:
    """A number in a body that fits an int32 field of the Kafka protocol. Raises ValueError otherwise."""
    value = body.get(name, absent)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is a whole number, not {value!r}")
    if abs(value) > INT32_MAX:
        raise ValueError(f"{name} is at most {INT32_MAX}, not {value:.3g}")
    return value


def timeout_s(text: str) -> float:
    """The timeout of a wait, as text in a request. Raises ValueError if it is none."""
    try:
        found = float(text or WAIT_S)
    except ValueError:
        raise ValueError(f"timeout is in seconds, not {text!r}") from None
    if not 0 <= found <= WAIT_MAX_S:
        raise ValueError(f"timeout is 0 to {WAIT_MAX_S:g} seconds, not {text}")
    return found
