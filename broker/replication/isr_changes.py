"""Sends ISR changes to the controller: AlterPartition, batched, with one request in flight per broker.

`partition` decides what to propose and what an answer means. A request that cannot be delivered is sent again after a
short pause. The controller treats a repeated proposal as done, so a lost answer does no harm. Source: Kafka's
`DefaultAlterPartitionManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

from anabranch.broker.replication.isr_change import IsrChange, Verdict
from anabranch.broker.replication.partition import Partition
from anabranch.broker.tasks.supervised_task import OnFailure, supervised_task
from anabranch.protocol.apis.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.protocol.apis.alter_partition import AlterPartitionResponse, PartitionDataResult

log = logging.getLogger(__name__)

RETRY_PAUSE_S: Final = 0.05
Proposal = tuple[Partition, IsrChange]
AskController = Callable[["AlterPartitionRequest"], Awaitable["AlterPartitionResponse"]]


class IsrChanges:
    """The queue of proposed ISRs and the task that sends them."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        ask_controller: AskController,
        settled: Callable[[Partition], None],
        died: OnFailure,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._ask_controller = ask_controller
        self._settled = settled
        self._died = died
        self.expansions = 0
        self.shrinks = 0
        """The number of granted proposals that shrank an ISR; above, of those that expanded one."""
        self._queue: list[Proposal] = []
        self._wakeup = asyncio.Event()
        self._failing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start sending proposals."""
        self._task = supervised_task(self._deliver_all(), f"isr-changes-{self._broker_id}", self._died)

    async def stop(self) -> None:
        """Stop sending; pending proposals stay pending."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def submit(self, partition: Partition, change: IsrChange) -> None:
        """Send this proposal with the next request."""
        log.info("%r: proposing the ISR %s", partition, list(change.isr))
        self._queue.append((partition, change))
        self._wakeup.set()

    async def _deliver_all(self) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            # A LeaderAndIsr may have withdrawn a proposal in the queue.
            batch = [(partition, change) for partition, change in self._queue if partition.pending is change]
            self._queue = []
            if batch:
                again = await self._deliver(batch)
                if again:
                    self._queue += again
                    self._wakeup.set()
                    await asyncio.sleep(RETRY_PAUSE_S)

    async def _deliver(self, batch: list[Proposal]) -> list[Proposal]:
        """Send one request; return the proposals to send again."""
        try:
            response = await self._ask_controller(request_for(batch, self._broker_id, self._broker_epoch()))
        except (ConnectionError, TimeoutError, OSError, KafkaError) as error:
            self._log_failure(str(error))
            return batch
        if response.error_code != ErrorCode.NONE:
            self._log_failure(ErrorCode(response.error_code).name)
            return batch
        self._failing = False
        answers = answers_of(response)
        again: list[Proposal] = []
        for partition, change in batch:
            answer = answers.get((partition.topic_id, partition.index)) or answers.get(
                (partition.topic, partition.index)
            )
            if answer is None:
                again.append((partition, change))
                continue
            members = len(partition.isr)
            verdict = partition.on_answer(change, answer)
            self.expansions += len(partition.isr) > members
            self.shrinks += len(partition.isr) < members
            log.info("%r: %s (%s)", partition, verdict.value, ErrorCode(answer.error_code).name)
            if verdict is Verdict.RETRY:
                again.append((partition, change))
            elif verdict in (Verdict.COMMITTED, Verdict.REVERTED):
                self._settled(partition)
        return again

    def _log_failure(self, reason: str) -> None:
        """Log once per outage: without a controller the log would fill."""
        level = logging.DEBUG if self._failing else logging.INFO
        self._failing = True
        log.log(level, "cannot send ISR changes to the controller, retrying: %s", reason)


def request_for(batch: Iterable[Proposal], broker_id: int, broker_epoch: int) -> AlterPartitionRequest:
    """Return the AlterPartition with these proposals, filled for every version."""
    topics: dict[tuple[str, bytes], TopicData] = {}
    for partition, change in batch:
        key = (partition.topic, partition.topic_id)
        if key not in topics:
            topics[key] = TopicData(topic_name=partition.topic, topic_id=partition.topic_id, partitions=[])
        members = zip(change.isr, change.epochs, strict=True)
        topics[key].partitions.append(
            PartitionData(
                partition_index=partition.index,
                leader_epoch=change.leader_epoch,
                new_isr=list(change.isr),
                new_isr_with_epochs=[BrokerState(broker_id=member, broker_epoch=epoch) for member, epoch in members],
                partition_epoch=change.partition_epoch,
            )
        )
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))


def answers_of(response: AlterPartitionResponse) -> dict[tuple[bytes | str, int], PartitionDataResult]:
    """Return the rows of a response by topic id (v2 on) or topic name, and partition index."""
    return {
        (topic.topic_id if any(topic.topic_id) else topic.topic_name, row.partition_index): row
        for topic in response.topics
        for row in topic.partitions
    }
