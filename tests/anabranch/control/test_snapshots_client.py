"""The client of snapshots waits as long as a cluster of processes may need."""

from __future__ import annotations

from anabranch.control.snapshots_client import SnapshotsClient


def test_snapshot_of_processes_may_take_minutes() -> None:
    """All nodes stop and start again, "on a busy machine a minute"; the client gave up after 60 s."""
    waited: dict[str, float] = {}

    def ask(method: str, path: str, body: object = None, *, patience_s: float = 60) -> None:
        waited[path.removeprefix("/v1/state/snapshots/")] = patience_s

    snapshots = SnapshotsClient(ask)
    snapshots.take("before")
    snapshots.restore("before")
    assert waited == {"before": 300, "before/restore": 300}
