"""ACLs in ZooKeeper: Kafka's znodes byte for byte, and malformed ones."""

from __future__ import annotations

import pytest

from anabranch.controller.zk.acl_znodes import (
    all_parents,
    decode_acls,
    decode_change,
    encode_acls,
    encode_change,
    is_valid_name,
    path_of,
)
from anabranch.controller.zk.body import MalformedZnode
from anabranch.protocol.acls import Acl, Operation, PatternType, Permission, ResourcePattern, ResourceType

ALICE = Acl("User:alice", "*", Operation.READ, Permission.ALLOW)
BOB = Acl("User:CN=bob,O=Ä", "10.0.0.1", Operation.DESCRIBE_CONFIGS, Permission.DENY)
KAFKAS = b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}]}'
TOPIC = ResourcePattern(ResourceType.TOPIC, "t:1")
TOPICS = ResourcePattern(ResourceType.TOPIC, "t:", PatternType.PREFIXED)


def test_kafka_acl_znode_survives_the_round_trip() -> None:
    assert decode_acls("/kafka-acl/Topic/t", KAFKAS) == {ALICE}
    assert encode_acls([ALICE]) == KAFKAS


def test_acl_entries_are_encoded_in_fixed_order() -> None:
    assert encode_acls([ALICE, BOB]) == encode_acls([BOB, ALICE])
    assert decode_acls("/x", encode_acls([ALICE, BOB])) == {ALICE, BOB}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"version":2,"acls":[]}',
        b'{"version":1,"acls":{}}',
        b'{"version":1,"acls":["User:alice"]}',
        KAFKAS.replace(b"Read", b"Fly"),
        KAFKAS.replace(b"Allow", b"Maybe"),
        KAFKAS.replace(b'"*"', b"7"),
        KAFKAS.replace(b',"host":"*"', b""),
    ],
)
def test_malformed_acl_znode_is_refused_as_a_whole(data: bytes) -> None:
    with pytest.raises(MalformedZnode):
        decode_acls("/kafka-acl/Topic/t", data)


def test_literal_and_prefixed_patterns_have_separate_trees() -> None:
    assert path_of(TOPIC) == "/kafka-acl/Topic/t:1"
    assert path_of(TOPICS) == "/kafka-acl-extended/prefixed/Topic/t:"
    assert "/kafka-acl/TransactionalId" in all_parents()
    assert "/kafka-acl-extended-changes" in all_parents()
    assert len(all_parents()) == 14


def test_change_notifications_equal_those_of_kafka() -> None:
    assert encode_change(TOPIC) == ("/kafka-acl-changes/acl_changes_", b"TOPIC:t:1")
    assert encode_change(TOPICS) == (
        "/kafka-acl-extended-changes/acl_changes_",
        b'{"version":1,"resourceType":"TOPIC","name":"t:","patternType":"PREFIXED"}',
    )


@pytest.mark.parametrize("pattern", [TOPIC, TOPICS])
def test_change_notification_names_its_pattern(pattern: ResourcePattern) -> None:
    path, data = encode_change(pattern)
    assert decode_change(f"{path}0000000007", data) == pattern


@pytest.mark.parametrize("data", [b"TOPIC", b"TOPIC:", b"ROCK:t", b"\xff:t"])
def test_malformed_change_notification_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedZnode):
        decode_change("/kafka-acl-changes/acl_changes_1", data)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\0", "\x1f", "\x7f", "\x9f", "\ud800", "\uf8ff", "\ufff0", "😀"]
)
def test_name_rejected_by_zookeeper_is_invalid(name: str) -> None:
    assert not is_valid_name(name)


@pytest.mark.parametrize("name", ["*", "...", "a b", "a%2F", "é", "\xa0", "\uf900", "\uffef", "x" * 5000])
def test_name_accepted_by_zookeeper_is_valid(name: str) -> None:
    assert is_valid_name(name)
