"""The requests of a front about snapshots; see `ProcessSnapshots`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from anabranch.cluster.process_snapshots import ProcessSnapshots, SnapshotRefused, StoredSnapshot
from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.front.front import Front
from anabranch.control.route import ControlRequest, Done
from anabranch.control.state_routes import SnapshotRow

NO_LAUNCHER: Final = (
    "this front has not started the nodes, so it cannot stop them and copy their directories; `anabranch up "
    "--processes --control` can"
)


async def get_snapshots(on: Front, request: ControlRequest) -> list[SnapshotRow]:
    """Get every snapshot."""
    return [_row(one) for one in _snapshots(on).kept.values()]


async def take_snapshot(on: Front, request: ControlRequest) -> SnapshotRow:
    """Take a snapshot; replace one of the same name. All nodes stop and start again."""
    name, snapshots = request.words["name"], _snapshots(on)
    async with _changing(on):
        taken = await snapshots.take(name)
        await _linked(on)
    on.publish("snapshot taken", snapshot=name)
    return _row(taken)


async def restore_snapshot(on: Front, request: ControlRequest) -> Done:
    """Restore a snapshot. All nodes stop; those that ran at the snapshot start again."""
    name, snapshots = request.words["name"], _snapshots(on)
    _get(snapshots, name)
    async with _changing(on):
        await snapshots.restore(name)
        on.forget_epochs()
        await _linked(on)
    on.publish("restored", snapshot=name)
    return {}


async def remove_snapshot(on: Front, request: ControlRequest) -> Done:
    """Remove a snapshot."""
    snapshots = _snapshots(on)
    _get(snapshots, request.words["name"])
    await snapshots.remove(request.words["name"])
    return {}


@asynccontextmanager
async def _changing(on: Front) -> AsyncIterator[None]:
    """A block during which no action runs on any node."""
    async with on.exclusively(), on.actions.exclusively():
        try:
            yield
        except SnapshotRefused as error:
            raise ActionRefused(str(error)) from None


async def _linked(on: Front) -> None:
    """Wait until the nodes that run have their rules."""
    for node_id, link in on.links.items():
        if link.node.running:
            await on.wait_up(node_id)


def _snapshots(on: Front) -> ProcessSnapshots:
    if on.snapshots is None:
        raise ActionRefused(NO_LAUNCHER)
    return on.snapshots


def _get(snapshots: ProcessSnapshots, name: str) -> StoredSnapshot:
    kept = snapshots.kept
    if name not in kept:
        raise UnknownNode(f"there is no snapshot {name}; there are {', '.join(kept) or 'none'}")
    return kept[name]


def _row(one: StoredSnapshot) -> SnapshotRow:
    return {"snapshot": one.name, "nodes": list(one.nodes), "running": list(one.running), "bytes": one.size_bytes}


SNAPSHOT_HANDLERS: Final = (get_snapshots, take_snapshot, restore_snapshot, remove_snapshot)
