"""The report of a failed run of an application's instances.

What is missing, and in which partitions; how far the group is, and who waits for whom; what each instance says of
itself, its newest log lines and what its tasks wait for. Whatever cannot be found out is told as such, and hides
nothing else.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from anabranch import Admin
from anabranch.cli.groups import gate_lines
from anabranch.clients.clock import time_of_day_clock
from anabranch.clients.consumer.offset_lookup import READ_COMMITTED, READ_UNCOMMITTED, OffsetResets
from anabranch.clients.group_admin import committed_offsets, describe_group
from anabranch.inspect.closed_gates import closed_gates_of
from anabranch.protocol import linear_hashing
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.topic_partition import TopicPartition
from tests.clients.streams.instances import Instance, Output

EXAMPLES: Final = 5
PATIENCE_S: Final = 15
"""For each question: who is asked may be what hangs."""


async def inquest(
    admin: Admin, group: str, topic: str, output: Output, expected: Mapping[bytes, Any], instances: Sequence[Instance]
) -> str:
    """A readable report of a failed application."""
    questions: Mapping[str, Callable[[], Awaitable[list[str]]]] = {
        "output": lambda: _output(admin, topic, output, expected),
        "group": lambda: _group(admin, group),
        "gates": lambda: _gates(admin, group),
        "ends of logs": lambda: _ends(admin),
        **{f"instance {one.name}": one.account for one in instances},
    }
    reported: list[str] = []
    for what, ask in questions.items():
        reported.append(f"== {what}")
        try:
            async with asyncio.timeout(PATIENCE_S):
                reported += await ask()
        except Exception as error:
            reported.append(f"not known: {error!r}")
    return "\n".join(reported)


async def _output(admin: Admin, topic: str, output: Output, expected: Mapping[bytes, Any]) -> list[str]:
    lineage = (await admin.describe_topic(topic)).lineage
    differ = [key for key in expected if output.table.get(key) != expected[key]]
    lines = [
        f"{output.records} records of {len(output.table)} keys; of {len(expected)} expected {len(differ)} differ",
        f"the last record came {output.idle_s:.1f} s ago",
        *(f"  {key!r}: {output.table.get(key)}, expected {expected[key]}" for key in differ[:EXAMPLES]),
        *(f"  {key!r} was never sent" for key in list(output.table.keys() - expected.keys())[:EXAMPLES]),
    ]
    if lineage is not None:
        count = lineage.history[-1][1]
        where = Counter(linear_hashing.address(murmur2(key), lineage.base, count) for key in differ)
        lines += [f"  {number} of them in {topic}-{partition}" for partition, number in sorted(where.items())]
    return lines


async def _group(admin: Admin, group: str) -> list[str]:
    known = await describe_group(admin.network, group)
    committed = await committed_offsets(admin.network, group)
    return [
        f"{known.state}, {len(known.members)} members",
        *(f"  {one}: committed {at}, read by {known.owner(one) or 'nobody'}" for one, at in sorted(committed.items())),
    ]


async def _gates(admin: Admin, group: str) -> list[str]:
    now_ms = time_of_day_clock()()
    closed = await closed_gates_of(admin, group, ())
    return [line for gate in closed for line in gate_lines(gate, now_ms=now_ms)] or ["every gate is open"]


async def _ends(admin: Admin) -> list[str]:
    topics = await admin.describe_topics()
    every = sorted(
        TopicPartition(name, index) for name, one in topics.items() if not one.internal for index in one.partitions
    )
    admin.network.follow(*topics)
    await admin.network.refresh()
    stable = await OffsetResets("latest", READ_COMMITTED).find(admin.network, every, set())
    written = await OffsetResets("latest", READ_UNCOMMITTED).find(admin.network, every, set())
    return [f"  {one}: {stable.get(one, '?')}, {written.get(one, '?')}" for one in every]
