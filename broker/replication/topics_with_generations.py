"""Tracks the topics that hold batches with generations, and has the controller record a topic before its first one.

A leader appends a batch with a generation only if it knows that the topic's znode records this (R16): from
LeaderAndIsr, from UpdateMetadata, or from the answer to its own AlterPartition. The append has to wait, not just the
response. Otherwise a consumer could read the batch, and a resize planned in between would admit producers without
generations.

One request per broker is in flight and carries all waiting topics. A failed or overwritten request is repeated after a
short pause, as long as this broker leads a partition for which it was sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from anabranch.broker.tasks.supervised_task import OnFailure, supervised_task
from anabranch.protocol.apis.alter_partition import AlterPartitionRequest, TopicData
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import MetadataCache
    from anabranch.broker.replication.isr_changes import AskController
    from anabranch.broker.replication.partition import Partition

log = logging.getLogger(__name__)

RETRY_PAUSE_S: Final = 0.05
Topic = tuple[str, bytes]
"""Name and id."""


class TopicsWithGenerations:
    """The pending topics of one broker, and the task that sends them."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        metadata: MetadataCache,
        ask_controller: AskController,
        died: OnFailure,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._metadata = metadata
        self._ask_controller = ask_controller
        self._died = died
        self._wakeup = asyncio.Event()
        self._waiting: dict[Topic, tuple[set[Partition], asyncio.Future[None]]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start sending."""
        self._task = supervised_task(self._ask_all(), f"topics-with-generations-{self._broker_id}", self._died)

    async def stop(self) -> None:
        """Stop sending, and end the waits of all requests."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._settle(list(self._waiting))

    def is_known(self, partition: Partition) -> bool:
        """Return whether the partition's topic is known to hold batches with generations."""
        if not partition.has_generations:
            topic = self._metadata.topic(partition.topic)
            partition.has_generations = (
                topic is not None and topic.has_generations and topic.topic_id == partition.topic_id
            )
        return partition.has_generations

    async def write(self, partitions: Iterable[Partition], timeout_ms: int) -> None:
        """Have the topics of these partitions recorded; return when they are, or when the time is up."""
        outcomes = [self._ask(partition) for partition in partitions]
        self._wakeup.set()
        await asyncio.wait(outcomes, timeout=timeout_ms / 1000)

    def _ask(self, partition: Partition) -> asyncio.Future[None]:
        key = partition.topic, partition.topic_id
        if key not in self._waiting:
            self._waiting[key] = set(), asyncio.get_running_loop().create_future()
        partitions, outcome = self._waiting[key]
        partitions.add(partition)
        return outcome

    async def _ask_all(self) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            self._settle(
                [key for key, (partitions, _) in self._waiting.items() if not any(one.is_leader for one in partitions)]
            )
            if not self._waiting:
                continue
            written = await self._deliver(list(self._waiting))
            for key in written:
                for partition in self._waiting[key][0]:
                    partition.note_generations()
            self._settle(written)
            if self._waiting:
                self._wakeup.set()
                await asyncio.sleep(0 if written else RETRY_PAUSE_S)

    async def _deliver(self, topics: list[Topic]) -> list[Topic]:
        """Send one request; return the recorded topics."""
        try:
            response = await self._ask_controller(request_for(topics, self._broker_id, self._broker_epoch()))
        except (ConnectionError, TimeoutError, OSError, KafkaError) as error:
            log.debug("cannot reach the controller, retrying: %s", error)
            return []
        if response.error_code != ErrorCode.NONE:
            log.debug("the controller answered %s, retrying", ErrorCode(response.error_code).name)
            return []
        written = {
            one.topic_id if any(one.topic_id) else one.topic_name for one in response.topics if one.has_generations
        }
        return [(name, topic_id) for name, topic_id in topics if topic_id in written or name in written]

    def _settle(self, topics: Iterable[Topic]) -> None:
        for key in topics:
            _, outcome = self._waiting.pop(key)
            outcome.set_result(None)


def request_for(topics: Iterable[Topic], broker_id: int, broker_epoch: int) -> AlterPartitionRequest:
    """Return the AlterPartition that changes no ISR, and names the topics about to get their first batch with a
    generation.
    """
    rows = [
        TopicData(topic_name=name, topic_id=topic_id, partitions=[], has_generations=True) for name, topic_id in topics
    ]
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=rows)
