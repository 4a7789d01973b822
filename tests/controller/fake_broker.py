"""A broker as the controller sees it: a TCP server that decodes requests and keeps no records.

It follows Kafka's rules (stale epochs are refused, equal leader epochs are STALE_CONTROLLER_EPOCH) and asserts what the
controller must never do: show one leader epoch with two generations (R2), or let an epoch or a generation go back.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from anabranch.controller.features import RESHARD
from anabranch.controller.model import Broker, Endpoint, TopicPartition
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.session import ZkSession
from anabranch.protocol.apis import leader_and_isr as lai
from anabranch.protocol.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from anabranch.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from anabranch.protocol.apis.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from anabranch.protocol.apis.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from anabranch.protocol.connection import ServerConnection
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.registry import api_of

REQUESTS = (ApiVersionsRequest, LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest, ListOffsetsRequest)
SERVED = {api_of(request).key: (0, api_of(request).last_version) for request in REQUESTS}


@dataclass
class FakeBroker:
    id: int
    session: ZkSession
    epoch: int = -1
    controller_epoch: int = 0
    partitions: dict[TopicPartition, lai.LeaderAndIsrPartitionState] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    """Topic -> (topic fields of the newest UpdateMetadata, {index: partition})."""
    live_brokers: dict[int, Any] = field(default_factory=dict)
    requests: list[Any] = field(default_factory=list)
    offsets: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """(log start, log end); (0, 0) if not given."""
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self) -> FakeBroker:
        self.answering.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        await self.register()
        return self

    async def register(self) -> None:
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", self.port)
        body = znodes.encode_broker(Broker(self.id, -1, (endpoint,), None, ((RESHARD, 1, 1),)), timestamp_ms=0)
        _, stat = await self.session.create_with_stat(paths.broker(self.id), body, ephemeral=True, make_parents=True)
        self.epoch = stat.czxid

    async def restart(self) -> None:
        """The same broker restarts unnoticed, with its data."""
        await self.session.delete(paths.broker(self.id))
        await self.register()

    async def die(self) -> None:
        """The process dies, and ZooKeeper ends its session."""
        await self.session.delete(paths.broker(self.id))
        await self.stop()

    async def stop(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        connection = ServerConnection(SERVED)
        try:
            while data := await reader.read(65536):
                connection.feed(data)
                while (request := connection.next_request()) is not None:
                    if not isinstance(request.body, ApiVersionsRequest):
                        await self.answering.wait()
                    writer.writelines(connection.answer(self._answer(request.body)))
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer(self, body: Any) -> Any:
        if isinstance(body, ApiVersionsRequest):
            keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in SERVED.items()]
            return ApiVersionsResponse(error_code=0, api_keys=keys)
        if isinstance(body, ListOffsetsRequest):
            return self._list_offsets(body)
        self.requests.append(body)
        self.changed.set()
        error = ErrorCode.NONE
        if body.broker_epoch < self.epoch:
            error = ErrorCode.STALE_BROKER_EPOCH
        elif body.controller_epoch < self.controller_epoch:
            error = ErrorCode.STALE_CONTROLLER_EPOCH
        if isinstance(body, LeaderAndIsrRequest):
            return self._leader_and_isr(body, error)
        if isinstance(body, StopReplicaRequest):
            return self._stop_replica(body, error)
        assert isinstance(body, UpdateMetadataRequest)
        return self._update_metadata(body, error)

    def _leader_and_isr(self, body: LeaderAndIsrRequest, error: ErrorCode) -> LeaderAndIsrResponse:
        if error:
            return LeaderAndIsrResponse(error_code=error)
        self.controller_epoch = body.controller_epoch
        topics = []
        for topic in body.topic_states:
            rows = []
            for row in topic.partition_states:
                partition = TopicPartition(topic.topic_name, row.partition_index)
                rows.append(
                    lai.LeaderAndIsrPartitionError(
                        partition_index=row.partition_index, error_code=self._adopt(partition, row)
                    )
                )
            topics.append(lai.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=rows))
        return LeaderAndIsrResponse(error_code=0, topics=topics)

    def _adopt(self, partition: TopicPartition, row: lai.LeaderAndIsrPartitionState) -> ErrorCode:
        known = self.partitions.get(partition)
        if known is not None:
            if row.leader_epoch == known.leader_epoch:
                assert row.generation == known.generation, f"{partition}: one epoch, two generations (R2)"
            if row.leader_epoch > known.leader_epoch:
                assert row.generation >= known.generation, f"{partition}: the generation went back (R1)"
            if row.leader_epoch <= known.leader_epoch:
                return ErrorCode.STALE_CONTROLLER_EPOCH
        assert self.id in row.replicas
        self.partitions[partition] = row
        return ErrorCode.NONE

    def _stop_replica(self, body: StopReplicaRequest, error: ErrorCode) -> StopReplicaResponse:
        if error:
            return StopReplicaResponse(error_code=error, partition_errors=[])
        rows = []
        for topic in body.topic_states:
            for row in topic.partition_states:
                if row.delete_partition:
                    self.partitions.pop(TopicPartition(topic.topic_name, row.partition_index), None)
                rows.append(
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=row.partition_index, error_code=0
                    )
                )
        return StopReplicaResponse(error_code=0, partition_errors=rows)

    def _update_metadata(self, body: UpdateMetadataRequest, error: ErrorCode) -> UpdateMetadataResponse:
        if error:
            return UpdateMetadataResponse(error_code=error)
        self.controller_epoch = body.controller_epoch
        self.live_brokers = {one.id: one for one in body.live_brokers}
        if body.type == 2:
            self.metadata = {}
        for topic in body.topic_states:
            _, partitions = self.metadata.get(topic.topic_name, (None, {}))
            for row in topic.partition_states:
                if row.leader == -2:
                    partitions.pop(row.partition_index, None)
                else:
                    partitions[row.partition_index] = row
            self.metadata[topic.topic_name] = (topic, partitions)
            if not partitions:
                del self.metadata[topic.topic_name]
        return UpdateMetadataResponse(error_code=0)

    def _list_offsets(self, body: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in body.topics:
            rows = []
            for row in topic.partitions:
                start, end = self.offsets.get(TopicPartition(topic.name, row.partition_index), (0, 0))
                rows.append(
                    ListOffsetsPartitionResponse(
                        partition_index=row.partition_index, error_code=0, offset=start if row.timestamp == -2 else end
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return ListOffsetsResponse(topics=topics)
