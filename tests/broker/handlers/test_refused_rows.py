"""The order of rows when some of a request are refused: Kafka's, seen at Kafka 3.9.1 and 4.2.0 (tests/differential)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from anabranch import NewTopic
from anabranch.protocol.acls import Acl, AclFilter, Operation, Permission, ResourcePattern, ResourceType
from tests.broker.handlers.authorization_rows import request_for
from tests.broker.handlers.authorizing import Asking, Place, place

__all__ = ["place"]
T, G = ResourceType.TOPIC, ResourceType.GROUP
REQUESTED: Final = {"t": (0, 9), "hidden": (0,), "late": (0,), "gone": (0,)}
"""Alice may read all but `hidden`; `gone` and partition 9 of `t` do not exist."""
FIRST: Final = ["t 9", "t 0", "hidden 0", "gone 0", "late 0"]
LAST: Final = ["t 0", "late 0", "t 9", "hidden 0", "gone 0"]
UNAUTHORIZED_LAST: Final = ["t 0", "t 9", "late 0", "gone 0", "hidden 0"]
ORDERS: Final[list[tuple[str, int, dict[str, Any], list[str]]]] = [
    ("OffsetCommit", 0, {"group_id": "g"}, FIRST),
    ("OffsetCommit", 8, {"group_id": "g", "generation_id_or_member_epoch": -1}, FIRST),
    ("TxnOffsetCommit", 3, {"transactional_id": "x", "group_id": "g", "generation_id": -1}, FIRST),
    ("OffsetDelete", 0, {"group_id": "g"}, FIRST),
    ("OffsetFetch", 7, {"group_id": "g"}, UNAUTHORIZED_LAST),
    ("Fetch", 11, {"replica_id": -1, "max_bytes": 1000}, LAST),
    ("ListOffsets", 5, {"replica_id": -1}, UNAUTHORIZED_LAST),
    ("OffsetForLeaderEpoch", 3, {"replica_id": -2}, UNAUTHORIZED_LAST),
    ("DescribeConfigs", 4, {}, ["t", "late", "gone", "hidden"]),
    ("DescribeGroups", 5, {"groups": ["g", "hidden", "h"]}, ["hidden", "g", "h"]),
]
EACH: Final[dict[str, dict[str, Any]]] = {
    "OffsetCommit": {"committed_offset": 0, "committed_metadata": "", "commit_timestamp": -1},
    "TxnOffsetCommit": {"committed_offset": 0, "committed_metadata": ""},
    "Fetch": {"partition_max_bytes": 100},
    "ListOffsets": {"current_leader_epoch": -1, "timestamp": -2},
    "OffsetForLeaderEpoch": {"current_leader_epoch": -1, "leader_epoch": 0},
}


def body(api: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request for all that is requested."""
    if api == "DescribeGroups":
        return fields
    if api == "DescribeConfigs":
        rows = [
            {"resource_type": 2, "resource_name": name, "configuration_keys": ["retention.ms"]} for name in REQUESTED
        ]
        return {"resources": rows}
    if api == "OffsetFetch":
        return {
            **fields,
            "topics": [{"name": name, "partition_indexes": list(ones)} for name, ones in REQUESTED.items()],
        }
    name = "topic" if api in ("Fetch", "OffsetForLeaderEpoch") else "name"
    index = "partition" if name == "topic" else "partition_index"
    topics = [
        {name: topic, "partitions": [{index: one, **EACH.get(api, {})} for one in ones]}
        for topic, ones in REQUESTED.items()
    ]
    return {**fields, "topics": topics}


def places(answer: Any) -> Iterator[str]:
    """The rows of an answer, in its order."""
    for row in getattr(answer, "results", None) or getattr(answer, "groups", None) or ():
        yield getattr(row, "resource_name", None) or row.group_id
    for topic in getattr(answer, "topics", None) or getattr(answer, "responses", None) or ():
        for one in topic.partitions:
            index = one.partition if hasattr(one, "partition") else one.partition_index
            yield f"{getattr(topic, 'name', None) or topic.topic} {index}"


async def prepare(asking: Asking) -> None:
    """Create what exists, and give alice her rights."""
    await asking.admin.create_topics([NewTopic(name="late")])
    await asking.admin.wait_for_topic("late")
    await asking.admin.delete_acls(AclFilter())
    rights = [(T, name, Operation.ALL) for name in ("t", "late", "gone")]
    rights += [(G, name, Operation.ALL) for name in ("g", "h")]
    rights += [(ResourceType.TRANSACTIONAL_ID, "x", Operation.ALL)]
    await asking.admin.create_acls(
        [
            (ResourcePattern(kind, name), Acl("User:alice", "*", operation, Permission.ALLOW))
            for kind, name, operation in rights
        ]
    )


async def orders(asking: Asking) -> dict[str, list[str]]:
    """The rows of each answer."""
    return {
        f"{api} v{version}": list(places(await asking.alice.call(request_for(api, body(api, fields)), version=version)))
        for api, version, fields, _ in ORDERS
    }


async def test_refused_rows_are_where_kafka_puts_them(place: Place) -> None:
    await prepare(place)
    assert await orders(place) == {f"{api} v{version}": expected for api, version, _, expected in ORDERS}
