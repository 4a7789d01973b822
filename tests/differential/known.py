"""Known differences from Kafka, each with its reason.

A row names the answers by a pattern over "API.case #place path"; `test_differential` fails on a difference that no row
explains, and on a row that explains nothing any more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tests.differential.compare import Difference


@dataclass(frozen=True, slots=True)
class Known:
    """A difference that is understood."""

    pattern: str
    why: str
    in_kafka_4: bool = False
    """Whether it is the same with Kafka 4."""
    since: str = "4.0"
    """The Kafka 4 from which on there is what it is about."""

    @property
    def api(self) -> str:
        """The API whose cases show it first."""
        return re.split(r"\W", self.pattern.lstrip("("), maxsplit=1)[0]

    def explains(self, difference: Difference) -> bool:
        """Whether it is this one."""
        story, _, place = difference.what.split(" ", 2)
        return re.fullmatch(self.pattern, f"{story} {place} {difference.path}") is not None


KNOWN_DIFFERENCES: Final[tuple[Known, ...]] = (
    Known(
        r"CreateTopics\.by_assignment #(8|9|10) topics\[0\].*",
        "Kafka makes a topic whose partition has no replica, and fails at a partition of number -1; ours refuses both",
    ),
    Known(
        r"DeleteTopics\.by_id #(3|5|6) .*",
        "Kafka's controller goes on to know the ids of deleted topics, and calls neither name nor id a lack of rights",
    ),
    Known(
        r"DescribeConfigs\.one_broker_config_at_a_time #41 .*",
        "a node takes 10000 connections unless it is told more: Kafka's default is more than a process may have",
        in_kafka_4=True,
    ),
    Known(
        r"IncrementalAlterConfigs\.of_a_topic_refused #(14|15) responses\[0\]\.error_code",
        "Kafka has no answer for an operation that does not exist, if it is for a topic; ours is INVALID_REQUEST",
        in_kafka_4=True,
    ),
    Known(
        r"Metadata\.creates_what_it_is_asked_for #1 topics\[0\].*",
        "a topic that a request creates gets a moment to elect leaders, so that most clients need not ask again",
        in_kafka_4=True,
    ),
    Known(
        r"Metadata\.by_topic_id #6 .*",
        "Kafka fails at a topic of neither name nor id; ours calls the row invalid and answers the rest",
        in_kafka_4=True,
    ),
    Known(
        r"Fetch\.limits #5 responses\[0\]\.partitions\[\d\]\..*",
        "Kafka fails at a negative limit for a partition; ours reads it as the smallest",
        in_kafka_4=True,
    ),
    Known(
        r"Fetch\.the_same_partition_twice #1 .*",
        "Kafka keeps what is asked in a map and answers once; ours answers every row",
        in_kafka_4=True,
    ),
    Known(
        r"ListOffsets\.(of_a_log #1[34]|of_compressed_batches #[34]) .*\.old_style_offsets",
        "version 0 asks by the times at which Kafka's files were changed; ours takes the times of their records",
    ),
    Known(
        r"(ListOffsets\.with_epochs #4|OffsetForLeaderEpoch\.current_epochs #3) .*",
        "an epoch below -1 means to Kafka an epoch long gone; to us, like -1, that the client knows none",
        in_kafka_4=True,
    ),
    Known(
        r"ElectLeaders\.elections #6 .*",
        "Kafka has no answer for a kind of election that does not exist; ours is INVALID_REQUEST",
        in_kafka_4=True,
    ),
    Known(
        r"AlterPartitionReassignments\.moves #8 responses",
        "a topic without partitions is answered without partitions; Kafka leaves it out",
    ),
    Known(
        r"ControlledShutdown\.of_a_stranger #1 error_code",
        "Kafka has no answer for a broker that nobody knows; ours is BROKER_NOT_AVAILABLE",
    ),
    Known(
        r"Produce\.in_a_transaction #8 .*\.log_start_offset",
        "a batch of an older epoch than the open transaction's is refused by the log in Kafka 3.9, which names its "
        "start, and by the coordinator in ours, as in Kafka 4",
    ),
    Known(
        r"TxnOffsetCommit\.refused_offsets #9 .*\.error_code",
        "Kafka 3.9 takes offsets of another epoch into an open transaction; ours asks its coordinator, as Kafka 4 does",
    ),
    Known(
        r"Produce\.(unsound_batches #[457]|odd_headers #7) .*\.log_start_offset",
        "what is refused before it comes to the log has no log start offset in Kafka's answer; ours names it",
        in_kafka_4=True,
    ),
    Known(
        r"Produce\.odd_offsets #.*",
        "Kafka lets records in that do not count from 0, or fails; ours refuses the batch, for their readers' sake",
        in_kafka_4=True,
    ),
    Known(
        r"AlterPartitionReassignments\.moved #[345] .*\.leader_epoch",
        "a move that is complete is one write here, with one new epoch; in Kafka the new leader comes before it",
        in_kafka_4=True,
    ),
    Known(
        r"Fetch\.(old_formats_of_zstd|of_a_topic_without_conversion|zstd_for_old.*|conversion_.*) #\d .*\.records",
        "records that an old version cannot have are an empty message set, not null, which librdkafka cannot read",
    ),
    Known(
        r"DescribeGroups\.without_topic_classic_left_without_offsets #.*",
        "whenever a topic is deleted, Kafka 3.9 forgets all groups without members and offsets; ours those that had "
        "read it, and the others at the check of retention",
    ),
)

KNOWN_OF_KAFKA_4: Final[tuple[Known, ...]] = (
    Known(
        r"DescribeConfigs\.the_cluster_default #1 .*configs\[zookeeper.connect\]",
        "Kafka keeps what it does not know for all brokers, and tells it; ours keeps it and does not",
    ),
    Known(
        r"CreateTopics\.with_good_configs #(5|20|21) .*\.value",
        "Kafka 4 tells the value of a property as it was written, also with blanks and capitals; ours what it means",
    ),
    Known(
        r"DeleteTopics\.no_time #1 .*\.topic_id",
        "the answer that the time is up tells the topic's id",
    ),
    Known(
        r"Fetch\.as_a_follower .*node_endpoints",
        "a replica is told where the leader is that it does not know, too",
    ),
    Known(
        r"OffsetCommit\.with_unknown_members #1 .*",
        "a member of a group that is not there is told ILLEGAL_GENERATION by every version; Kafka 4 has another for v9",
    ),
    Known(
        r"DescribeTopicPartitions\.topics_not_there #3 .*",
        "Kafka fails at a topic without a name; ours calls the name illegal",
    ),
    Known(
        r"ShareFetch\.refused #(2|3|4|9|10) .*",
        "Kafka fails without a group or a member, and at a topic that there is not; ours says what is wrong",
        since="4.2",
    ),
    Known(
        r"ShareFetch\.limits #5 .*acquired_records.*",
        "Kafka puts a range without records before one that is acquired in batches of none; ours does not",
        since="4.2",
    ),
    Known(
        r"ShareAcknowledge\.wrong #(5|6) error_code",
        "Kafka fails at a kind of acknowledgement that does not exist; ours is INVALID_REQUEST",
        since="4.2",
    ),
    Known(
        r"DescribeShareGroupOffsets\.where_it_stands #(2|3) .*(start_offset|lag)",
        "ours writes down at once where a group begins, so that its next leader begins there too",
        since="4.2",
    ),
    Known(
        r"DescribeShareGroupOffsets\.where_it_stands #4 .*",
        "Kafka never answers where a partition is asked for that does not exist",
        since="4.2",
    ),
    Known(
        r"DescribeShareGroupOffsets\.where_it_stands #8 .*",
        "Kafka fails at a group without a name; ours has nothing of it",
        since="4.2",
    ),
    Known(
        r"AlterShareGroupOffsets\.set_anew #4 .*lag",
        "Kafka does not know what is left after a group was moved, until it has read on; ours does",
        since="4.2",
    ),
    Known(
        r"DescribeGroups\.administered_share_living #\d+ .*(start_offset|lag)",
        "ours writes down at once where a group begins, so that its next leader begins there too",
        since="4.2",
    ),
    Known(
        r"DescribeGroups\.administered_share_(left|joined_and_left) #\d+ .*lag",
        "Kafka does not know what is left after a group was moved, until it has read on; ours does",
        since="4.2",
    ),
    Known(
        r"DescribeGroups\.administered_share_(left|joined_and_left) #\d+ .*group_epoch",
        "a group whose offsets are set or forgotten begins a new epoch, so that what comes late of before is refused",
        since="4.2",
    ),
)
"""What else is different from Kafka 4."""


def known_differences(kafka: str) -> tuple[Known, ...]:
    """What is different from this Kafka."""
    if kafka < "4":
        return KNOWN_DIFFERENCES
    return (
        *(row for row in KNOWN_DIFFERENCES if row.in_kafka_4),
        *(row for row in KNOWN_OF_KAFKA_4 if row.since <= kafka),
    )
