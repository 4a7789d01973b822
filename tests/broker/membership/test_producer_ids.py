"""The active controller allocates blocks of producer ids, only for registered brokers."""

from __future__ import annotations

import asyncio

from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.controller.zk import paths, znodes
from anabranch.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from anabranch.protocol.apis.init_producer_id import InitProducerIdRequest
from anabranch.protocol.errors import ErrorCode


async def test_producer_id_blocks_are_allocated_by_the_controller() -> None:
    async with Cluster(brokers=2) as cluster, asyncio.timeout(60):
        nodes = cluster.nodes
        (active,) = (n for n, node in nodes.items() if node.controller is not None and node.controller.active)
        other = next(n for n in nodes if n != active)
        epoch = nodes[other].services.fence.broker_epoch
        at = {n: await Connection.open("127.0.0.1", node.port, client_id="test") for n, node in nodes.items()}
        for node_id, broker, broker_epoch, error in [
            (other, other, epoch, ErrorCode.NOT_CONTROLLER),
            (active, 99, epoch, ErrorCode.BROKER_ID_NOT_REGISTERED),
            (active, other, epoch - 1, ErrorCode.STALE_BROKER_EPOCH),
        ]:
            allocate = AllocateProducerIdsRequest(broker_id=broker, broker_epoch=broker_epoch)
            assert ErrorCode((await at[node_id].call(allocate)).error_code) is error
        block = await at[active].call(AllocateProducerIdsRequest(broker_id=other, broker_epoch=epoch))
        assert (block.error_code, block.producer_id_start, block.producer_id_len) == (0, 0, 1000)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        assert (await at[other].call(request)).producer_id == 1000
        assert (await at[active].call(request)).producer_id == 2000
        data, _ = await nodes[other].session.get(paths.LATEST_PRODUCER_ID_BLOCK)
        assert znodes.decode_producer_id_block(paths.LATEST_PRODUCER_ID_BLOCK, data) == znodes.ProducerIdBlock(
            active, 2000, 2999
        )
        for connection in at.values():
            await connection.close()
