"""The compatibility profile of a Kafka version: API versions, features and differences in behaviour.

A profile is data. It lists the advertised and accepted versions of each API, the features, and each difference between
Kafka's versions; one handler reads each difference. The controller and ZooKeeper are the same in all profiles.
`broker.config.config_def` has the properties of each version. Sources: `ApiKeys`, `Feature` and `ApiVersionManager` of
each release.
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
    """A Kafka version as clients see it."""

    version: str
    ranges: Mapping[str, str] = field(hash=False)
    """API -> the advertised versions: "0-11"."""
    refused_below: Mapping[str, int] = field(default_factory=dict, hash=False)
    """API -> the first accepted version, if older ones are advertised."""
    shows_own_apis: bool = False
    """Whether the APIs of KIP-253 are advertised to other clients than this project's."""
    any_broker_is_controller: bool = False
    """Whether each broker accepts controller requests and forwards them; clients see no controller (KRaft)."""
    answers_like_a_quorum: bool = False
    """Whether requests about topics, configurations and quotas are validated as in KRaft where that differs from
    ZooKeeper: some errors have other codes, and duplicate names get one response row.
    """
    converts_messages: bool = True
    """Whether old consumers get an error for topics whose batches cannot be down-converted."""
    has_share_coordinator: bool = False
    """Whether FindCoordinator validates the key of a share partition on a broker without share groups, too."""
    isolates_failing_records: bool = False
    """Whether share groups acquire records with many deliveries in small batches, and alone at the last delivery."""
    drops_expressions_at_once: bool = False
    """Whether a member that removes its regular expression starts a new group epoch at once, not at a topic change."""
    leave_group_removes_all_kinds: bool = False
    """Whether LeaveGroup also removes members of the consumer protocol."""
    alter_offsets_creates_share_groups: bool = False
    """Whether AlterShareGroupOffsets creates a missing group."""
    shows_last_assignments: bool = False
    """Whether DescribeGroups shows the last generation's assignments during a rebalance."""
    keeps_emptied_groups: bool = False
    """Whether an Empty group without offsets stays until the next retention check."""
    clears_start_of_transaction: bool = False
    """Whether InitProducerId clears the start time of the last transaction, which DescribeTransactions shows."""
    tests_pending_first: bool = False
    """Whether AddPartitionsToTxn and AddOffsetsToTxn test the pending transition before producer id and epoch."""
    groups_have_configs: bool = False
    """Whether groups have configurations."""
    has_client_metrics: bool = False
    """Whether client metrics subscriptions exist (KIP-714)."""
    updates_features_together: bool = False
    """Whether one refused feature update refuses all updates of the request (KIP-1022)."""
    supported_features: Mapping[str, tuple[int, int]] = field(default_factory=dict, hash=False)
    """Feature -> lowest and highest level."""
    finalized_features: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Feature -> the level in a new cluster; 0: not finalized."""


@functools.cache
def profile_for(version: str) -> CompatibilityProfile:
    """Return the profile of a version. Raises ValueError, which lists the versions."""
    if version not in VERSIONS:
        raise ValueError(f"{version!r} is no version of Kafka that can be shown: write one of {', '.join(VERSIONS)}")
    module = importlib.import_module(f"anabranch.broker.profiles.kafka_{version.replace('.', '_')}")
    found: CompatibilityProfile = module.PROFILE
    return found


def table(text: str) -> dict[str, str]:
    """Parse a table of lines "NAME VALUE"."""
    lines = (line.split(None, 1) for line in text.strip().splitlines())
    return {words[0]: words[1] for words in lines}


def change_table(before: Mapping[str, str], changes: str) -> dict[str, str]:
    """Return a table with changed and added lines; "NAME gone" removes a line."""
    after = {**before, **table(changes)}
    return {name: rest for name, rest in after.items() if rest != "gone"}
