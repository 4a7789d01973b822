"""Commands are executed one after the other; a failed one has no effect."""

from __future__ import annotations

import asyncio

from anabranch import Admin
from anabranch.testing.cluster_host import ClusterHost

ONE = {"brokers": 1, "properties": {}, "journal": 0}


async def test_clusters_start_and_stop_on_request() -> None:
    host = ClusterHost()
    async with asyncio.timeout(60):
        first = await host.carry_out({"start": ONE})
        second = await host.carry_out({"start": {**ONE, "brokers": 2}})
        assert (first["cluster"], second["cluster"]) == (1, 2) and first["control"] != second["control"]
        async with Admin(second["bootstrap"]) as admin:
            assert len((await admin.describe_cluster()).brokers) == 2
        assert await host.carry_out({"stop": 1}) == {"stopped": 1}
        refused = await host.carry_out({"start": {**ONE, "properties": {"x": "1"}}})
        assert "unknown property 'x'" in refused["error"]
        assert len(host._running) == 1
        await host.close()
        assert not host._running
