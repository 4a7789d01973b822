"""Whether a replica still has what its place in the in-sync set promises, as far as its own disk can tell.

It has not when its log went further once than it goes now, or when a flush has failed. Such a replica refuses to lead,
and says so of an in-sync set that names it, as long as somebody else is in it: the controller then takes it out and
elects another one. Alone it leads with what it has, as in Kafka, and says what that means.

What was lost is forgotten as soon as the set does not count on it: whoever is taken in again has proved that it has
everything. A failed disk is one until the log is opened again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from protocol.apis.leader_and_isr import LeaderAndIsrPartitionState

log = logging.getLogger(__name__)


def judge(partition: Partition, state: LeaderAndIsrPartitionState, broker_id: int, *, news: bool) -> bool:
    """Whether this replica is not what a row of LeaderAndIsr takes it for; `news` if the row is to be applied."""
    known = partition.log.durability
    in_sync = broker_id in state.isr
    others = any(one != broker_id for one in state.isr)
    another_life = state.is_new or partition.is_of_an_earlier_life(state)
    if known.reached and news and (another_life or not in_sync or not others):
        if in_sync and not another_life:
            log.error(
                "%r: leading with what is left, because no other replica is in sync: the log went to %d once",
                partition,
                known.reached,
            )
        known.reached = 0
    if not (in_sync and others) or (not known.reached and known.failure is None):
        return False
    if known.reached:
        log.warning("%r: not in sync with %s: the log went to %d once", partition, list(state.isr), known.reached)
    else:
        log.warning("%r: not in sync with %s: %s", partition, list(state.isr), known.failure)
    return True
