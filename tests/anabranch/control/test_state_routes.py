"""A cluster with a data directory refuses snapshots; test_states covers the rest over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.cluster.in_process import Cluster
from anabranch.control.client import ControlClient, ControlError
from anabranch.control.endpoint import Address, ControlEndpoint


async def test_cluster_on_disk_is_not_reset(tmp_path: Path) -> None:
    import asyncio

    door = ControlEndpoint(Address("127.0.0.1", 0), "")
    control = ControlClient(door.url)
    async with Cluster(1, data_dir=tmp_path) as cluster, door.open(cluster):
        cluster.shift_clock(1, 60_000)
        await asyncio.to_thread(control.faults.add, name="stays", api="Produce", hold=True)
        for attempt in (control.reset, lambda: control.snapshots.take("x")):
            with pytest.raises(ControlError, match="this cluster keeps its data in a directory") as refused:
                await asyncio.to_thread(attempt)
            assert refused.value.status == 409
        assert [one.rule.name for one in cluster.faults] == ["stays"], "a refused reset changes nothing"
        assert cluster.clock_offset_ms(1) == 60_000
