"""A blocking client for a cluster's snapshots, for synchronous Python tests.

control.snapshots.take("seeded")
...
control.snapshots.restore("seeded")         # topics, records, groups and transactions are as they were
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.protocol.suggestion import suggest_arguments
from anabranch.runtime.private_files import write_private_file

if TYPE_CHECKING:
    from anabranch.control.state_routes import SnapshotRow
    from anabranch.control.states import ForkRow

Ask = Callable[..., Any]
PATIENCE_S: Final = 300.0
"""How long a snapshot of a cluster of processes may take, which stops and starts all nodes."""


@suggest_arguments
class SnapshotsClient:
    """The snapshots of a cluster, by name."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def rows(self) -> list[SnapshotRow]:
        """Get every snapshot: `snapshot` (its name), `nodes`, `running`, `bytes`."""
        found: list[SnapshotRow] = self._ask("GET", "/v1/state/snapshots")
        return found

    def take(self, name: str) -> None:
        """Take a snapshot of the cluster; replace one of the same name.

        Raises:
            ControlError: The cluster keeps its data in a directory.
        """
        self._ask("POST", _path(name), patience_s=PATIENCE_S)

    def restore(self, name: str) -> None:
        """Restore a snapshot; connections are closed. ControlError if it does not exist."""
        self._ask("POST", f"{_path(name)}/restore", patience_s=PATIENCE_S)

    def remove(self, name: str) -> None:
        """Remove a snapshot. ControlError if it does not exist."""
        self._ask("DELETE", _path(name))

    def save(self, name: str, path: str | Path) -> None:
        """Write a snapshot to a file, for another cluster or for `anabranch up --from`."""
        write_private_file(path, self._ask("GET", f"{_path(name)}/file"))

    def load(self, name: str, path: str | Path) -> None:
        """Read a snapshot from a file. ControlError if the file holds none."""
        self._ask("PUT", f"{_path(name)}/file", Path(path).read_bytes())

    def fork(self, snapshot: str = "") -> tuple[int, ForkRow]:
        """Start another cluster with this cluster's data, or with a snapshot's.

        Args:
            snapshot: The snapshot's name.

        Returns:
            The fork's number, and its addresses: `bootstrap`, `control`.
        """
        response: ForkRow = self._ask("POST", "/v1/state/forks", {"snapshot": snapshot})
        return response["fork"], response

    def end_fork(self, number: int) -> None:
        """Stop a fork. ControlError if it does not exist."""
        self._ask("DELETE", f"/v1/state/forks/{number}")


def _path(name: str) -> str:
    return f"/v1/state/snapshots/{urllib.parse.quote(name, safe='')}"
