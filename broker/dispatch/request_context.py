"""The parts of every handler: its declaration, its context and the helper for per-partition answers.

A handler is `async def produce(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | None`, declared with
`@handles(ProduceRequest, versions="0-11")`. None means no response (Produce with acks=0). The ranges in the decorators
equal the rows of `broker.dispatch.dispatcher.HANDLERS`, from which ApiVersions and SUPPORT.md are made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.authorization.peer import Peer
    from anabranch.broker.dispatch.services import Services
    from anabranch.broker.tasks.yield_budget import YieldBudget

Requested = TypeVar("Requested")
Row = TypeVar("Row")
HandlerFunction = TypeVar("HandlerFunction", bound=Callable[..., Awaitable[Any]])

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class CloseConnection(Exception):
    """Raised to close the connection, as Kafka does when a Produce with acks=0 fails.

    `response` may be sent before.
    """

    def __init__(self, reason: str, response: Any = None) -> None:
        super().__init__(reason)
        self.response = response


class AuthenticationFailed(CloseConnection):
    """Raised when a client fails in TLS or SASL."""


@value
class RequestContext:
    """The client, the version of its request, and the services of the node."""

    services: Services
    version: int
    client_id: str
    peer: Peer


def refuse_if_lost(ctx: RequestContext) -> None:
    """Raise CloseConnection if the client's connection is lost: it may have repeated the request, and gone on.

    For a request that has waited or yielded, and would undo what the client has requested since.
    """
    if ctx.peer.connection.is_lost:
        raise CloseConnection("the connection was lost while a request was prepared")


@value
class HandlerDeclaration:
    """The arguments of `@handles`."""

    request: type[Any]
    first_version: int
    last_version: int


def handles(request: type[Any], *, versions: str) -> Callable[[HandlerFunction], HandlerFunction]:
    """Declare the request class and the inclusive version range ("0-11" or "0") that a handler serves."""
    first, last = version_range(versions)

    def declare(function: HandlerFunction) -> HandlerFunction:
        _declared[function] = HandlerDeclaration(request, first, last)
        return function

    return declare


_declared: Final[dict[Callable[..., Awaitable[Any]], HandlerDeclaration]] = {}
"""A table, because compiled functions have no attributes."""


def declaration_of(handler: Callable[..., Awaitable[Any]]) -> HandlerDeclaration:
    """Return the declaration of a handler."""
    return _declared[handler]


def version_range(versions: str) -> tuple[int, int]:
    """Parse "3-7" or "4" into the first and last version."""
    first, _, last = versions.partition("-")
    return int(first), int(last or first)


async def answer_each(
    turns: YieldBudget,
    requested: Iterable[Requested],
    answer: Callable[[Requested], Row],
    refuse: Callable[[Requested, ErrorCode], Row],
) -> list[Row]:
    """Answer each partition separately: a refused partition does not affect the others."""
    rows: list[Row] = []
    await turns.spend()
    for one in requested:
        await turns.spend()
        try:
            rows.append(answer(one))
        except KafkaError as error:
            rows.append(refuse(one, error.code))
    return rows
