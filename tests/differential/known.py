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
        "Kafka creates a partition without replicas, and fails on partition -1; a broker here refuses both",
    ),
    Known(
        r"DeleteTopics\.by_id #(3|5|6) .*",
        "Kafka's controller still knows ids of deleted topics; a row without name and id is an authorization "
        "error there",
    ),
    Known(
        r"DescribeConfigs\.one_broker_config_at_a_time #41 .*",
        "the default of max.connections is 10000; Kafka's default is above the usual limit of open files",
        in_kafka_4=True,
    ),
    Known(
        r"IncrementalAlterConfigs\.of_a_topic_refused #(14|15) responses\[0\]\.error_code",
        "Kafka has no specific error for an unknown operation on a topic; a broker here answers INVALID_REQUEST",
        in_kafka_4=True,
    ),
    Known(
        r"Metadata\.creates_what_it_is_asked_for #1 topics\[0\].*",
        "a request that creates a topic waits briefly for its leaders, so most clients need no second request",
        in_kafka_4=True,
    ),
    Known(
        r"Metadata\.by_topic_id #6 .*",
        "Kafka fails on a topic without name and id; a broker here refuses only this row",
        in_kafka_4=True,
    ),
    Known(
        r"Fetch\.limits #5 responses\[0\]\.partitions\[\d\]\..*",
        "Kafka fails on a negative partition_max_bytes; a broker here uses the smallest limit",
        in_kafka_4=True,
    ),
    Known(
        r"Fetch\.the_same_partition_twice #1 .*",
        "Kafka answers a partition that is requested twice once; a broker here answers each row",
        in_kafka_4=True,
    ),
    Known(
        r"ListOffsets\.(of_a_log #1[34]|of_compressed_batches #[34]) .*\.old_style_offsets",
        "version 0 compares with modification times of Kafka's files; a broker here compares with record timestamps",
    ),
    Known(
        r"(ListOffsets\.with_epochs #4|OffsetForLeaderEpoch\.current_epochs #3) .*",
        "Kafka treats an epoch below -1 as an old epoch; a broker here treats it as unknown, like -1",
        in_kafka_4=True,
    ),
    Known(
        r"ElectLeaders\.elections #6 .*",
        "Kafka has no specific error for an unknown election type; a broker here answers INVALID_REQUEST",
        in_kafka_4=True,
    ),
    Known(
        r"AlterPartitionReassignments\.moves #8 responses",
        "a topic without partitions is in the response, without partitions; Kafka leaves it out",
    ),
    Known(
        r"ControlledShutdown\.of_a_stranger #1 error_code",
        "Kafka has no specific error for an unknown broker; a controller here answers BROKER_NOT_AVAILABLE",
    ),
    Known(
        r"Produce\.in_a_transaction #8 .*\.log_start_offset",
        "in Kafka 3.9 the log refuses a batch of an older epoch than its transaction, with the log start offset; "
        "here the coordinator refuses it, as in Kafka 4",
    ),
    Known(
        r"TxnOffsetCommit\.refused_offsets #9 .*\.error_code",
        "Kafka 3.9 adds offsets of another epoch to an open transaction; here its coordinator is asked, as in Kafka 4",
    ),
    Known(
        r"Produce\.(unsound_batches #[457]|odd_headers #7) .*\.log_start_offset",
        "if a batch is refused before the append, Kafka's response has no log start offset; here it has one",
        in_kafka_4=True,
    ),
    Known(
        r"Produce\.odd_offsets #.*",
        "Kafka accepts offset deltas that do not count from 0, or fails; here the batch is refused, to protect "
        "consumers",
        in_kafka_4=True,
    ),
    Known(
        r"AlterPartitionReassignments\.moved #[345] .*\.leader_epoch",
        "a complete move is one write with one new leader epoch; Kafka first elects the new leader in another epoch",
        in_kafka_4=True,
    ),
    Known(
        r"Fetch\.(old_formats_of_zstd|of_a_topic_without_conversion|zstd_for_old.*|conversion_.*) #\d .*\.records",
        "records that an old version cannot represent are an empty message set; null, as in Kafka, breaks librdkafka",
    ),
    Known(
        r"DescribeGroups\.without_topic_classic_left_without_offsets #.*",
        "when a topic is deleted, Kafka 3.9 removes all groups without members and offsets; here only those that "
        "had read it, and the others at the next check of offset retention",
    ),
)

KNOWN_OF_KAFKA_4: Final[tuple[Known, ...]] = (
    Known(
        r"CreateTopics\.with_good_configs #(5|20|21) .*\.value",
        "Kafka 4 returns the value of a property as it was written, with blanks and capitals; here it is normalized",
    ),
    Known(
        r"DeleteTopics\.no_time #1 .*\.topic_id",
        "the REQUEST_TIMED_OUT response has the topic id",
    ),
    Known(
        r"Fetch\.as_a_follower .*node_endpoints",
        "followers, too, get the address of the present leader (KIP-951)",
    ),
    Known(
        r"OffsetCommit\.with_unknown_members #1 .*",
        "a commit to a missing group gets ILLEGAL_GENERATION in every version; Kafka 4 has another error for v9",
    ),
    Known(
        r"DescribeTopicPartitions\.topics_not_there #3 .*",
        "Kafka fails on a topic without a name; a broker here answers INVALID_TOPIC_EXCEPTION",
    ),
    Known(
        r"ShareFetch\.refused #(2|3|4|9|10) .*",
        "Kafka fails without a group or a member id, and on a missing topic; here the response names the error",
        since="4.2",
    ),
    Known(
        r"ShareFetch\.limits #5 .*acquired_records.*",
        "Kafka puts an empty range before an acquired range; here there is none",
        since="4.2",
    ),
    Known(
        r"ShareAcknowledge\.wrong #(5|6) error_code",
        "Kafka fails on an unknown acknowledgement type; a broker here answers INVALID_REQUEST",
        since="4.2",
    ),
    Known(
        r"DescribeShareGroupOffsets\.where_it_stands #(2|3) .*(start_offset|lag)",
        "the start offset of a group is stored at once here, so the next leader starts at the same offset",
        since="4.2",
    ),
    Known(
        r"DescribeShareGroupOffsets\.where_it_stands #4 .*",
        "Kafka sends no response to a request about a missing partition",
        since="4.2",
    ),
    Known(
        r"DescribeShareGroupOffsets\.where_it_stands #8 .*",
        "Kafka fails on a group without a name; here it is a group without offsets",
        since="4.2",
    ),
    Known(
        r"AlterShareGroupOffsets\.set_anew #4 .*lag",
        "after a reset of a group's offsets, Kafka knows no lag until the group reads; here the lag is known",
        since="4.2",
    ),
    Known(
        r"DescribeGroups\.administered_share_living #\d+ .*(start_offset|lag)",
        "the start offset of a group is stored at once here, so the next leader starts at the same offset",
        since="4.2",
    ),
    Known(
        r"DescribeGroups\.administered_share_(left|joined_and_left) #\d+ .*lag",
        "after a reset of a group's offsets, Kafka knows no lag until the group reads; here the lag is known",
        since="4.2",
    ),
    Known(
        r"DescribeGroups\.administered_share_(left|joined_and_left) #\d+ .*group_epoch",
        "a reset or deletion of a group's offsets raises its epoch, so late earlier requests are refused",
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
