"""What clients push to a cluster elsewhere, for tests in Python that block.

control.telemetry.wait_for("shop")
assert "org.apache.kafka.producer.connection.creation.total" in control.telemetry.names("shop")
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from anabranch.runtime.private_files import write_private_file

PATIENCE_S: Final = 60.0


class TelemetryClient:
    """The clients of a cluster that push metrics of theirs, or have asked whether they should."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def clients(self) -> list[dict[str, Any]]:
        """Each with its `client` id, `instance` id, `software`, what is `wanted` of it, its `pushes`, and the `last`.

        Raises:
            ControlError: No broker takes metrics of clients (409).
        """
        found: list[dict[str, Any]] = self._ask("GET", "/v1/telemetry")
        return found

    def wait_for(
        self, client: str, pushes: int = 1, *, terminated: bool = False, timeout_s: float = 30.0
    ) -> list[dict[str, Any]]:
        """Wait until a client has pushed so often.

        Args:
            client: Its client id, or its client instance id.
            pushes: How often.
            terminated: And for the last time, as clients do that are closed.
            timeout_s: How long to wait.

        Returns:
            The clients with this id.

        Raises:
            ControlError: The time was up (status 408); the message says what was missing.
        """
        words = urllib.parse.urlencode({"pushes": pushes, "terminated": str(terminated).lower(), "timeout": timeout_s})
        path = f"{_path_of(client)}/wait?{words}"
        found: list[dict[str, Any]] = self._ask("GET", path, patience_s=timeout_s + PATIENCE_S)
        return found

    def read(self, client: str) -> list[dict[str, Any]]:
        """Those with this client id or client instance id, each with its `metrics`, or why they are `unread`.

        Raises:
            ControlError: It has not even asked what to push (404).
        """
        found: list[dict[str, Any]] = self._ask("GET", _path_of(client))
        return found

    def metrics(self, client: str) -> list[dict[str, Any]]:
        """The data points of what came last of a client: each with `name`, `kind`, `value`, `attributes`, ...

        Args:
            client: Its client id, of which there may be several, or its client instance id.

        Raises:
            ControlError: It has not even asked what to push (404).
            RuntimeError: They cannot be read; the message says why.
        """
        rows = self.read(client)
        for unread in (row["unread"] for row in rows):
            if unread:
                raise RuntimeError(f"metrics of {client}: {unread}")
        return [point for row in rows for point in row["metrics"]]

    def names(self, client: str) -> set[str]:
        """The names of these; see `metrics`."""
        return {point["name"] for point in self.metrics(client)}

    def save(self, client: str, path: str | Path) -> None:
        """Write what came last of a client to a file, as it came: OTLP. ControlError (404) if nothing did."""
        write_private_file(path, self._ask("GET", f"{_path_of(client)}/otlp"))


def _path_of(client: str) -> str:
    return f"/v1/telemetry/{urllib.parse.quote(client, safe='')}"
