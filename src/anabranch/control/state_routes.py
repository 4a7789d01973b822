"""The routes of a cluster's data: reset, take and restore snapshots, fork."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Final, TypedDict, TypeVar

from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.route import ControlRequest, Done, Route
from anabranch.control.states import ForkRow
from anabranch.state.snapshot import Snapshot
from anabranch.state.snapshot_file import Steps

if TYPE_CHECKING:
    from anabranch.control.states import States

T = TypeVar("T")


class SnapshotRow(TypedDict):
    """A snapshot."""

    snapshot: Annotated[str, "its name"]
    nodes: Annotated[list[int], "the nodes whose data it has"]
    running: Annotated[list[int], "the nodes that ran"]
    bytes: int


class ForkBody(TypedDict, total=False):
    """A fork."""

    snapshot: Annotated[str, "the snapshot with the fork's data; the current data if left out"]


async def reset_state(on: ControlledCluster, request: ControlRequest) -> Done:
    """Return to the state after the start."""
    await _states(on).reset()
    return {}


async def get_snapshots(on: ControlledCluster, request: ControlRequest) -> list[SnapshotRow]:
    """Get every snapshot."""
    return [_row(name, one) for name, one in _states(on).kept.items()]


async def take_snapshot(on: ControlledCluster, request: ControlRequest) -> SnapshotRow:
    """Take a snapshot; replace one of the same name."""
    name = request.words["name"]
    taken = _states(on).kept[name] = await _states(on).take()
    return _row(name, taken)


async def restore_snapshot(on: ControlledCluster, request: ControlRequest) -> Done:
    """Restore a snapshot."""
    await _states(on).restore(_states(on).get(request.words["name"]))
    return {}


async def remove_snapshot(on: ControlledCluster, request: ControlRequest) -> Done:
    """Remove a snapshot."""
    _states(on).get(request.words["name"])
    del _states(on).kept[request.words["name"]]
    return {}


async def get_snapshot_file(on: ControlledCluster, request: ControlRequest) -> bytes:
    """Get a snapshot as a file."""
    return _states(on).get(request.words["name"]).to_bytes()


async def put_snapshot_file(on: ControlledCluster, request: ControlRequest) -> SnapshotRow:
    """Store a snapshot from a file."""
    name = request.words["name"]
    kept = _states(on).kept[name] = await _in_turns(Snapshot.reading(request.content, request.file_bytes_max))
    return _row(name, kept)


async def fork_state(on: ControlledCluster, request: ControlRequest) -> ForkRow:
    """Start another cluster with this cluster's data, or with a snapshot's."""
    name = request.body.get("snapshot", "")
    return await _states(on).fork(_states(on).get(name) if name else await _states(on).take())


async def end_fork(on: ControlledCluster, request: ControlRequest) -> Done:
    """Stop a fork."""
    number = request.words["fork"]
    await _states(on).end_fork(int(number) if number.isdecimal() else 0)
    return {}


async def _in_turns(steps: Steps[T]) -> T:
    """Execute the steps, and let the brokers' loop run between them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


def _states(on: ControlledCluster) -> States:
    assert on.states is not None
    return on.states


def _row(name: str, one: Snapshot) -> SnapshotRow:
    size_bytes = sum(len(content) for files in one.files.values() for content in files.values())
    return {"snapshot": name, "nodes": list(one.node_ids), "running": sorted(one.running), "bytes": size_bytes}


ONE: Final = "/v1/state/snapshots/{name}"
STATE_ROUTES: Final[tuple[Route, ...]] = (
    Route("POST", "/v1/state/reset", "Reset the cluster to its start; connections are closed.", reset_state),
    Route("GET", "/v1/state/snapshots", "All snapshots.", get_snapshots),
    Route("POST", ONE, "Take a snapshot with this name.", take_snapshot),
    Route("DELETE", ONE, "Remove a snapshot.", remove_snapshot),
    Route("POST", ONE + "/restore", "Restore a snapshot; connections are closed.", restore_snapshot),
    Route("GET", ONE + "/file", "A snapshot as a file.", get_snapshot_file, gives_file=True),
    Route(
        "PUT", ONE + "/file", "Load a snapshot file under this name.", put_snapshot_file, takes_file=True, waits=True
    ),
    Route(
        "POST",
        "/v1/state/forks",
        "Start another cluster with the same state, or that of a snapshot; return its addresses.",
        fork_state,
        body=ForkBody,
        waits=True,
    ),
    Route("DELETE", "/v1/state/forks/{fork}", "Stop a fork.", end_fork, waits=True),
)
