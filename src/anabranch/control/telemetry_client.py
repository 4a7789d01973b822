"""A blocking client for the metrics that clients push to a cluster, for synchronous Python tests.

control.telemetry.wait_for("shop")
assert "org.apache.kafka.producer.connection.creation.total" in control.telemetry.names("shop")
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.protocol.suggestion import suggest_arguments
from anabranch.runtime.private_files import write_private_file

if TYPE_CHECKING:
    from anabranch.control.otlp import PointRow
    from anabranch.control.telemetry import TelemetryRow
    from anabranch.control.telemetry_routes import MetricsRow

PATIENCE_S: Final = 60.0


@suggest_arguments
class TelemetryClient:
    """The clients of a cluster that push metrics, or have asked for their subscription (KIP-714)."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def clients(self) -> list[TelemetryRow]:
        """Get the clients: `client` id, `instance` id, `software`, the metrics `wanted`, number of `pushes`, and the
        `last`.

        Raises:
            ControlError: No broker accepts client metrics (409).
        """
        found: list[TelemetryRow] = self._ask("GET", "/v1/telemetry")
        return found

    def wait_for(
        self, client: str, pushes: int = 1, *, terminated: bool = False, timeout_s: float = 30.0
    ) -> list[TelemetryRow]:
        """Wait until a client has pushed a number of times.

        Args:
            client: Its client id or client instance id.
            pushes: The number of pushes.
            terminated: Also wait for the last push of a client that closes.
            timeout_s: The timeout in seconds.

        Returns:
            The clients with this id.

        Raises:
            ControlError: The wait timed out (status 408); the message names the unmet condition.
        """
        words = urllib.parse.urlencode({"pushes": pushes, "terminated": str(terminated).lower(), "timeout": timeout_s})
        path = f"{_path_of(client)}/wait?{words}"
        found: list[TelemetryRow] = self._ask("GET", path, patience_s=timeout_s + PATIENCE_S)
        return found

    def read(self, client: str) -> list[MetricsRow]:
        """Get the clients with this client id or client instance id, with their `metrics`, or the reason as `unread`.

        Raises:
            ControlError: No such client has asked for its subscription (404).
        """
        found: list[MetricsRow] = self._ask("GET", _path_of(client))
        return found

    def metrics(self, client: str) -> list[PointRow]:
        """Get the data points of a client's last push: each with `name`, `kind`, `value`, `attributes`, ...

        Args:
            client: Its client id (which several clients may share) or client instance id.

        Raises:
            ControlError: No such client has asked for its subscription (404).
            RuntimeError: The metrics cannot be decoded; the message says why.
        """
        rows = self.read(client)
        for unread in (row["unread"] for row in rows):
            if unread:
                raise RuntimeError(f"metrics of {client}: {unread}")
        return [point for row in rows for point in row["metrics"] or ()]

    def names(self, client: str) -> set[str]:
        """The names of a client's metrics; see `metrics`."""
        return {point["name"] for point in self.metrics(client)}

    def save(self, client: str, path: str | Path) -> None:
        """Write the bytes (OTLP) of a client's last push to a file. ControlError (404) if there is none."""
        write_private_file(path, self._ask("GET", f"{_path_of(client)}/otlp"))


def _path_of(client: str) -> str:
    return f"/v1/telemetry/{urllib.parse.quote(client, safe='')}"
