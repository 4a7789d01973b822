"""`--metrics-port`: the endpoint for Prometheus, which costs nothing, not even an import, where nobody asks for it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from anabranch.broker.app import Node
    from anabranch.broker.metrics.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class Metrics:
    """Where the nodes of this process show themselves, if anywhere."""

    endpoint: Endpoint | None = None

    @property
    def ready(self) -> str:
        """What the ready line says of it."""
        return "" if self.endpoint is None else f" metrics={self.endpoint.url}"

    def show(self, node: Node) -> None:
        """Tell of a node that is started."""
        if self.endpoint is not None:
            self.endpoint.show(node)


@contextlib.asynccontextmanager
async def metrics_endpoint(host: str, port: int | None) -> AsyncIterator[Metrics]:
    """Listen, before any node is there that a port in use could stop; None: do not."""
    if port is None:
        yield Metrics()
        return
    try:
        from anabranch.broker.metrics.endpoint import Endpoint
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise click.UsageError("--metrics-port needs prometheus-client: pip install 'anabranch[metrics]'") from None
    async with Endpoint(host, port) as endpoint:
        yield Metrics(endpoint)
