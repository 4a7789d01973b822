"""Structures that several messages carry."""

from __future__ import annotations

from anabranch.protocol.wire import Int32, Text, always, message


@message
class GenerationStart:
    """From `leader_epoch` on, the partition accepts records of `generation` (KIP-253 repaired, R2)."""

    generation: Int32
    leader_epoch: Int32


@message
class LeaderIdAndEpoch:
    leader_id: Int32 = always(absent=-1)
    leader_epoch: Int32 = always(absent=-1)


@message
class NodeEndpoint:
    node_id: Int32
    host: Text
    port: Int32
    rack: Text | None = always(absent=None)


@message
class ReshardStep:
    """One resize of a topic: from `generation` on, producers hash over `count` partitions (KIP-253 repaired, R1)."""

    generation: Int32
    count: Int32
