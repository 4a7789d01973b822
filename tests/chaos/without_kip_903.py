"""`python -m tests.chaos.without_kip_903`: the product with the checks of KIP-903 taken out, to show what they prevent.

Broker epochs still travel; nobody compares them any more.
"""

from __future__ import annotations

from anabranch.broker.replication.follower import Follower
from anabranch.broker.replication.partition import Partition
from anabranch.cli.main import main
from anabranch.controller import alter_partition
from anabranch.controller.state import ClusterState
from anabranch.protocol.apis.alter_partition import PartitionData


def live_is_enough(state: ClusterState, isr: tuple[int, ...], row: PartitionData) -> bool:
    """Kafka's rule before KIP-903: every member is alive."""
    return set(isr) <= state.live


def seen_is_enough(partition: Partition, replica: int, follower: Follower) -> bool:
    """The leader's part of it."""
    return partition._rules.broker_epoch_of(replica) is not None


def take_out() -> None:
    """Replace both checks in this process."""
    alter_partition.eligible = live_is_enough
    Partition._eligible = seen_is_enough  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    take_out()
    main()
