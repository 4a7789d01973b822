"""`--metrics-port`: the endpoint for Prometheus; without the option its code is not imported."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import click

from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.metrics.endpoint import Endpoint
    from anabranch.broker.node.app import Node


@value
class Metrics:
    """The metrics endpoint of this process, if there is one."""

    endpoint: Endpoint | None = None

    @property
    def ready(self) -> str:
        """The part of the ready line that names the endpoint; empty if there is none."""
        return "" if self.endpoint is None else f" metrics={self.endpoint.url}"

    def show(self, node: Node) -> None:
        """Show the metrics of a started node."""
        if self.endpoint is not None:
            self.endpoint.show(node)


@contextlib.asynccontextmanager
async def metrics_endpoint(host: str, port: int | None) -> AsyncIterator[Metrics]:
    """Listen on `port`, unless None, while the block runs. Enter before nodes start: the port may be taken."""
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
