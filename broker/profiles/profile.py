"""What makes a node look like one version of Kafka: the columns of that table, and how a version is found by its name.

A profile is data. It says which versions of each API are shown and accepted, which features there are, and in which
way the node differs where versions differ; a handler asks it in one place for each difference. What is underneath, the
controller and ZooKeeper, is the same for all. `broker.config.config_def` says which properties each version has.
Sources: `ApiKeys`, `Feature` and `ApiVersionManager` of each release.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from anabranch.protocol.values import value

VERSIONS: Final = ("2.8", "3.5", "3.9", "4.0", "4.1", "4.2")
DEFAULT: Final = "3.9"


@value(kw_only=True)
class CompatibilityProfile:
    """One version of Kafka, as its clients see it."""

    version: str
    ranges: Mapping[str, str] = field(hash=False)
    """API -> the versions that clients are told of: "0-11"."""
    refused_below: Mapping[str, int] = field(default_factory=dict, hash=False)
    """API -> the first version that is accepted, where clients are told of older ones."""
    shows_own_apis: bool = False
    """Whether clients that are not this project's are told of the APIs of KIP-253."""
    any_broker_is_controller: bool = False
    """Whether each broker takes what is for the controller, and hands it on: clients see no controller (KRaft)."""
    answers_like_a_quorum: bool = False
    """Whether requests about topics, configurations and quotas are judged as KRaft's controllers do, where those differ
    from Kafka with ZooKeeper: other codes for some mistakes, and what is named twice is answered once."""
    converts_messages: bool = True
    """Whether old consumers are told that they cannot read what would have to be converted for them."""
    isolates_failing_records: bool = False
    """Whether records of a share group that were delivered often come with few others, and for the last time alone."""
    drops_expressions_at_once: bool = False
    """Whether a group of which a member drops its expression begins a new epoch then, and not when topics change."""
    leave_group_removes_all_kinds: bool = False
    """Whether LeaveGroup removes members that speak the consumer protocol, too."""
    alter_offsets_creates_share_groups: bool = False
    """Whether AlterShareGroupOffsets for a group that does not exist creates it."""
    shows_last_assignments: bool = False
    """Whether DescribeGroups shows the assignments of the last generation while a group rebalances."""
    keeps_emptied_groups: bool = False
    """Whether an Empty group that has lost its last offset stays until the next check of retention."""
    clears_start_of_transaction: bool = False
    """Whether InitProducerId clears the start of the last transaction, which administrators see."""
    tests_pending_first: bool = False
    """Whether AddPartitionsToTxn and AddOffsetsToTxn test the pending transition before producer id and epoch."""
    groups_have_configs: bool = False
    """Whether a group has a configuration, which one may describe and alter."""
    has_client_metrics: bool = False
    """Whether there are subscriptions to metrics of clients (KIP-714)."""
    updates_features_together: bool = False
    """Whether one update of a feature that is refused spoils the others of its request (KIP-1022)."""
    supported_features: Mapping[str, tuple[int, int]] = field(default_factory=dict, hash=False)
    """Feature -> lowest and highest level."""
    finalized_features: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Feature -> the level with which a new cluster begins; 0 is not finalized."""


@functools.cache
def profile_for(version: str) -> CompatibilityProfile:
    """The profile of a version. Raises ValueError, which says what there is."""
    if version not in VERSIONS:
        raise ValueError(f"{version!r} is no version of Kafka that can be shown: write one of {', '.join(VERSIONS)}")
    module = importlib.import_module(f"anabranch.broker.profiles.kafka_{version.replace('.', '_')}")
    found: CompatibilityProfile = module.PROFILE
    return found


def table(text: str) -> dict[str, str]:
    """The lines "NAME VALUE" of a table."""
    lines = (line.split(None, 1) for line in text.strip().splitlines())
    return {words[0]: words[1] for words in lines}


def changed(before: Mapping[str, str], changes: str) -> dict[str, str]:
    """A table with lines changed and added; "NAME gone" takes one away."""
    after = {**before, **table(changes)}
    return {name: rest for name, rest in after.items() if rest != "gone"}
