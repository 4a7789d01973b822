"""The offsets of a group after a reset, of the named partitions alone or with all that share keys with them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from anabranch.clients.consumer.offset_lookup import EARLIEST, LATEST, READ_UNCOMMITTED, find_offsets
from anabranch.clients.group_admin import committed_offsets
from anabranch.clients.group_gates import key_epoch_ends
from anabranch.clients.resize_plan import rewind_lineage
from anabranch.inspect.positions import POSITIONS, parse_position
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.clients.network import Network

TIMESTAMPS: Final = {"earliest": EARLIEST, "latest": LATEST}
SHIFTS: Final = ", or -100 from the committed offset"
TARGETS: Final = f"{POSITIONS}{SHIFTS}"
"""What may be written, for help."""
SHIFT: Final = re.compile(r"[+-]\d{1,18}")


class Shift(NamedTuple):
    """A number of offsets to move by, from the committed offset; negative to move back."""

    by: int


ResetTarget = Literal["earliest", "latest"] | int | datetime | Shift
"""An end of the log, an offset, the first record from a time on, or a shift. Offsets stop at the log's ends."""


def parse_target(text: str, *, now: datetime) -> ResetTarget:
    """Parse a target as people write it. Raises ValueError."""
    if SHIFT.fullmatch(text):
        return Shift(int(text))
    return parse_position(text, now=now, others=SHIFTS)


async def new_offsets(
    admin: Admin, group: str, name: str, partition: int | None, to: ResetTarget, *, with_lineage: bool
) -> dict[TopicPartition, tuple[int | None, int]]:
    """Return partition -> (current committed offset or None, new committed offset).

    Raises ValueError for a shift of a partition without a committed offset.
    """
    network = admin.network
    topic = await admin.describe_topic(name)
    network.follow(name)
    await network.refresh()
    if partition is not None and partition not in topic.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{partition}")
    chosen = sorted(topic.partitions) if partition is None else [partition]
    before = {one.partition: at for one, at in (await committed_offsets(network, group)).items() if one.topic == name}
    targets = await _targets(network, before, [TopicPartition(name, index) for index in chosen], to)
    if with_lineage and topic.lineage is not None:
        ends = await key_epoch_ends(network, topic)
        # The group may have read partitions that were drained and removed: they cannot be reset.
        there = {one: at for one, at in before.items() if network.metadata.partition(name, one) is not None}
        for one in there:
            if any(key_epoch not in ends for key_epoch in list(topic.lineage.key_epochs(one))[:-1]):
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{name}-{one} is being created or removed: try again")
        for index, offset in list(targets.items()):
            for one, rewound in rewind_lineage(topic.lineage, ends, there, index, offset).items():
                targets[one] = min(rewound, targets.get(one, rewound))
    return {TopicPartition(name, index): (before.get(index), offset) for index, offset in targets.items()}


async def _targets(
    network: Network, before: Mapping[int, int], chosen: Sequence[TopicPartition], to: ResetTarget
) -> dict[int, int]:
    """Partition -> its new offset, without regard to lineage."""
    if isinstance(to, Shift | int):
        if isinstance(to, Shift) and (missing := [one for one in chosen if one.partition not in before]):
            raise ValueError(f"{missing[0]} has no committed offset, which is needed for {to.by:+}")
        targets = {one.partition: to if isinstance(to, int) else before[one.partition] + to.by for one in chosen}
        starts, ends = await _offsets(network, chosen, EARLIEST), await _offsets(network, chosen, LATEST)
        return {one: min(max(targets[one], starts[one]), ends[one]) for one in starts}
    if isinstance(to, str):
        return await _offsets(network, chosen, TIMESTAMPS[to])
    return await _offsets(network, chosen, max(int(to.timestamp() * 1000), 0))


async def _offsets(network: Network, partitions: Sequence[TopicPartition], timestamp: int) -> dict[int, int]:
    """Partition -> the first offset at a timestamp, or the log's end if all records are older."""
    found = await find_offsets(network, dict.fromkeys(partitions, timestamp), READ_UNCOMMITTED)
    older = [one for one in partitions if found[one] is None]
    ends = await find_offsets(network, dict.fromkeys(older, LATEST), READ_UNCOMMITTED)
    answers = found | ends
    return {one.partition: at.offset for one, at in answers.items() if at is not None}
