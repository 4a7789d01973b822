"""Checks whether a replica still has the records that its place in the ISR promises, as far as its own disk shows.

It lacks some if its log was longer once, or if a flush has failed. Such a replica refuses an ISR that names it beside
another replica; the controller then removes it and elects another leader. Alone it leads with what it has, as in Kafka,
and logs the consequence.

The state is cleared once the ISR is without the replica: to rejoin, it has to prove that it has everything. A failed
disk stays failed until the log is opened again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from anabranch.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from anabranch.broker.replication.partition import Partition
    from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrPartitionState

log = logging.getLogger(__name__)


def check_lost_data(
    partition: Partition, state: LeaderAndIsrPartitionState, broker_id: int, verdict: ErrorCode
) -> ErrorCode:
    """Return the answer to a row of LeaderAndIsr: the `verdict` on its epochs, or that this replica has lost data.

    Called before a new row is applied. A repeated row, which is not older either, is answered as it was the first time.
    """
    known = partition.log.durability
    is_new = verdict is ErrorCode.NONE
    if known.reached and is_new:
        _forget_what_does_not_count(partition, state, broker_id)
    again = verdict is ErrorCode.STALE_CONTROLLER_EPOCH and state.leader_epoch == partition.leader_epoch
    counted = broker_id in state.isr and any(one != broker_id for one in state.isr)
    if not (is_new or again) or not counted or not (known.reached or known.failure):
        return verdict
    reason = f"the log had reached offset {known.reached}" if known.reached else known.failure
    log.warning("%r: this replica lost records and leaves the ISR %s: %s", partition, list(state.isr), reason)
    return ErrorCode.KAFKA_STORAGE_ERROR


def _forget_what_does_not_count(partition: Partition, state: LeaderAndIsrPartitionState, broker_id: int) -> None:
    known = partition.log.durability
    another_life = state.is_new or partition.is_previous_incarnation(state)
    alone = set(state.isr) == {broker_id}
    if alone and not another_life:
        text = "%r: this replica lost records after offset %d, but stays in sync: no other replica is"
        log.error(text, partition, known.reached)
    if alone or another_life or broker_id not in state.isr:
        known.reached = 0
        partition.log.touched()
