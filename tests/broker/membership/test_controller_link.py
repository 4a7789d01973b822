"""A request to an unreachable controller fails, whatever its registered address is."""

from __future__ import annotations

import pytest

from anabranch.broker.membership.controller_link import ControllerLink
from anabranch.controller.zk import paths
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.protocol.apis.alter_partition import AlterPartitionRequest


async def test_malformed_controller_znode_is_no_active_controller(caplog: pytest.LogCaptureFixture) -> None:
    session = await MemoryZooKeeper().connect()
    link = ControllerLink(lambda: session, client_id="test", request_timeout_ms=1000)
    for nonsense in (None, b"", b"nobody", b'{"version":2,"brokerid":"me"}'):
        if nonsense is not None:
            await session.create(paths.CONTROLLER, nonsense)
        assert await link.active() is None
        with pytest.raises(ConnectionError, match="no active controller"):
            await link.call(AlterPartitionRequest(broker_id=1, topics=[]))
        assert (paths.CONTROLLER in caplog.text) is (nonsense is not None)
        if nonsense is not None:
            await session.delete(paths.CONTROLLER)
    await link.close()
    await session.close()
