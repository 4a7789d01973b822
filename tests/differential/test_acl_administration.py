"""ACL requests have Kafka's effects, entries and errors.

Method: Kafka 3.9 with its AclAuthorizer and one broker of ours, both of whose anonymous users are super users, are
asked the same, in every version, on names that no other version uses. Nobody promises the order of rows in an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anabranch.cluster.in_process import Cluster
from anabranch.journal.comparison import unequal
from anabranch.protocol.apis.create_acls import AclCreation, CreateAclsRequest
from anabranch.protocol.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from anabranch.protocol.apis.describe_acls import DescribeAclsRequest
from tests.differential.case import Case, Run
from tests.differential.kafka_server import KafkaCluster, why_absent

pytestmark = [pytest.mark.kafka_jars, pytest.mark.processes]
PROPERTIES = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.replication.factor": "1",
}
UNKNOWN, ANY, MATCH, LITERAL, PREFIXED = range(5)
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
ALL, READ, WRITE, DESCRIBE = 2, 3, 4, 8
DENY, ALLOW = 2, 3
SETS = frozenset({"resources", "acls", "matching_acls"})
VERSIONS = range(4)


def entry(name: str, kind: int = TOPIC, pattern: int = LITERAL, **changed: Any) -> AclCreation:
    """One entry to be created."""
    given = {"principal": "User:alice", "host": "*", "operation": READ, "permission_type": ALLOW, **changed}
    return AclCreation(resource_type=kind, resource_name=name, resource_pattern_type=pattern, **given)


def filtering(name: str | None, kind: int = TOPIC, pattern: int = LITERAL, **changed: Any) -> dict[str, Any]:
    """The fields of a filter, in both requests that have one."""
    asked = {"principal_filter": None, "host_filter": None, "operation": ANY, "permission_type": ANY, **changed}
    return {"resource_type_filter": kind, "resource_name_filter": name, "pattern_type_filter": pattern, **asked}


class Telling(Run):
    """A story, and what it was answered."""

    async def create(self, *entries: AclCreation) -> None:  # type: ignore[override]
        await self.ask(CreateAclsRequest(creations=list(entries)), version=self.version)

    async def describe(self, *filters: dict[str, Any]) -> None:
        for one in filters:
            await self.ask(DescribeAclsRequest(**one), version=self.version)

    async def delete(self, *filters: dict[str, Any]) -> None:
        asked = [DeleteAclsFilter(**one) for one in filters]
        await self.ask(DeleteAclsRequest(filters=asked), version=self.version)

    @property
    def patterns(self) -> bool:
        """Whether requests name more than literal patterns."""
        return self.version > 0


async def literal_entries(run: Telling) -> None:
    name = run.name("orders")
    await run.create(entry(name), entry(name, permission_type=DENY, host="10.0.0.7"), entry(name, operation=ALL))
    await run.create(entry(name))  # once more
    await run.create(entry(name, GROUP), entry(name, TRANSACTIONAL_ID, operation=WRITE))
    await run.create(entry("kafka-cluster", CLUSTER, operation=DESCRIBE, principal=f"User:{name}"))
    await run.describe(filtering(name), filtering(name, ANY), filtering(name, GROUP), filtering(name + "-not"))
    await run.describe(
        filtering(name, ANY, principal_filter="User:alice"),
        filtering(name, ANY, principal_filter="User:bob"),
        filtering(name, ANY, host_filter="10.0.0.7"),
        filtering(name, ANY, operation=DESCRIBE),  # implied, and not said
        filtering(name, ANY, operation=ALL),
        filtering(name, ANY, permission_type=DENY),
        filtering(None, ANY, principal_filter=f"User:{name}"),
    )
    await run.delete(filtering(name, permission_type=DENY))
    await run.describe(filtering(name, ANY))
    await run.delete(filtering(name, permission_type=DENY))
    await run.delete(filtering(name, ANY, operation=READ), filtering(name, ANY), filtering(name, ANY))
    await run.describe(filtering(name, ANY))
    await run.delete(filtering(None, ANY, principal_filter=f"User:{name}"))


async def one_of_three_is_removed(run: Telling) -> None:
    """CVE-2024-27309: the others stay."""
    name = run.name("three")
    await run.create(*(entry(name, principal=f"User:{one}") for one in ("a", "b", "c")))
    await run.delete(filtering(name, principal_filter="User:b"))
    await run.describe(filtering(name))
    await run.delete(filtering(name))


async def names_that_are_refused(run: Telling) -> None:
    await run.create(entry("other-cluster", CLUSTER, operation=DESCRIBE))
    await run.create(entry(""))
    await run.create(entry("a/b"))
    good = run.name("good")
    await run.create(entry(good), entry("a/b"), entry("", GROUP))
    await run.describe(filtering(good), filtering(""), filtering("a/b"))
    await run.delete(filtering(good), filtering(""), filtering("a/b"))


async def names_that_no_znode_has(run: Telling) -> None:
    good = run.name("good")
    for name in (".", "..", "a\0b", "a\x01b", "a\x7fb", "a\ue000b", "a\uffffb", "😀", "a b é %", good * 20):
        await run.create(entry(name), entry(good))
        await run.describe(filtering(name))
        await run.delete(filtering(name))
        await run.describe(filtering(name))
    await run.delete(filtering(good))


async def principals_of_all_sorts(run: Telling) -> None:
    name = run.name("who")
    await run.create(entry(name, principal="alice"))
    await run.create(entry(name, principal="User:"))
    await run.create(entry(name, principal=":alice"))
    await run.create(entry(name, principal=""))
    await run.create(entry(name), entry(name, principal="alice"), entry(f"{name}-2"))
    await run.create(entry(name, principal="Group:ops"), entry(name, principal="User:CN=a,O=b:c"))
    await run.create(entry(name, principal="User:*"), entry(name, principal='User:é %/"\\'))
    await run.create(entry(name, host=""), entry(name, host="not an address"))
    await run.describe(filtering(name), filtering(f"{name}-2"), filtering(name, principal_filter="User:*"))
    await run.describe(filtering(name, principal_filter=""), filtering(name, host_filter=""))
    await run.delete(filtering(name), filtering(f"{name}-2"))


async def operations_that_a_type_does_not_have(run: Telling) -> None:
    name = run.name("odd")
    for operation in range(2, 15):
        await run.create(entry(name, GROUP, operation=operation))
    for kind in (6, 7):
        await run.create(entry(name, kind, operation=DESCRIBE))
    await run.describe(filtering(name, ANY))
    await run.delete(filtering(name, ANY))


async def numbers_that_mean_nothing(run: Telling) -> None:
    name = run.name("numbers")
    for changed in ({"operation": UNKNOWN}, {"operation": 99}, {"permission_type": UNKNOWN}, {"permission_type": 99}):
        await run.create(entry(name, **changed))
        await run.describe(filtering(name, **changed))
        await run.delete(filtering(name, **changed))
    for number in (-1, -128):
        await run.create(entry(name, operation=number))
    await run.create(entry(name), entry(name, operation=99), entry(f"{name}-2"), entry(f"{name}-2", 99))
    await run.describe(filtering(name, ANY), filtering(f"{name}-2", ANY))
    await run.delete(filtering(name, operation=99), filtering(name, ANY), filtering(f"{name}-2", ANY))
    for kind in (UNKNOWN, 99):
        await run.create(entry(name, kind))
        await run.describe(filtering(name, kind))
        await run.delete(filtering(name, kind))
    for pattern in (UNKNOWN, 99) if run.patterns else ():
        await run.create(entry(name, pattern=pattern))
        await run.describe(filtering(name, pattern=pattern))
        await run.delete(filtering(name, pattern=pattern))


async def words_of_filters_in_an_entry(run: Telling) -> None:
    name = run.name("filters")
    await run.create(entry(name, operation=ANY))
    await run.create(entry(name, permission_type=ANY))
    await run.create(entry(name, ANY))
    await run.create(entry(name), entry(name, operation=ANY))
    await run.create(entry(name), entry("", operation=99), entry(name, permission_type=ANY))
    if run.patterns:
        await run.create(entry(name, pattern=ANY))
        await run.create(entry(name, pattern=MATCH))
    await run.describe(filtering(name, ANY))
    await run.delete(filtering(name, ANY))


async def patterns(run: Telling) -> None:
    if not run.patterns:
        return
    name = run.name("ab")
    await run.create(
        entry(name),
        entry(name, pattern=PREFIXED, operation=WRITE),
        entry(name[:-1], pattern=PREFIXED),
        entry(f"{name}-longer", pattern=PREFIXED),
        entry("*", operation=DESCRIBE, principal=f"User:{name}"),
        entry("*", pattern=PREFIXED, principal=f"User:{name}"),
    )
    for pattern in (ANY, MATCH, LITERAL, PREFIXED):
        await run.describe(filtering(name, pattern=pattern), filtering(name[:-1], pattern=pattern))
        await run.describe(filtering(f"{name}-longer-still", pattern=pattern))
        await run.describe(filtering("*", pattern=pattern, principal_filter=f"User:{name}"))
        await run.describe(filtering(None, pattern=pattern, principal_filter=f"User:{name}"))
    await run.delete(filtering(f"{name}-x", pattern=MATCH, principal_filter="User:alice"))
    await run.describe(filtering(name, pattern=ANY), filtering(f"{name}-longer", pattern=ANY))
    await run.delete(filtering(None, pattern=ANY, principal_filter=f"User:{name}"))
    await run.delete(filtering(f"{name}-longer", ANY, ANY))
    await run.create(entry("a/b", pattern=PREFIXED))


async def nothing_is_asked(run: Telling) -> None:
    await run.create()
    await run.delete()


STORIES: list[Callable[[Telling], Any]] = [
    literal_entries,
    one_of_three_is_removed,
    names_that_are_refused,
    names_that_no_znode_has,
    principals_of_all_sorts,
    operations_that_a_type_does_not_have,
    numbers_that_mean_nothing,
    words_of_filters_in_an_entry,
    patterns,
    nothing_is_asked,
]


def in_order(content: Any) -> Any:
    """The same answer, with the rows that are a set in one order."""
    if isinstance(content, list):
        return [in_order(one) for one in content]
    if not isinstance(content, dict):
        return content
    return {
        name: sorted(in_order(one), key=repr) if name in SETS and isinstance(one, list) else in_order(one)
        for name, one in content.items()
    }


async def told(story: Callable[[Telling], Any], version: int, addresses: dict[int, tuple[str, int]]) -> Telling:
    """Send a story's requests to a cluster."""
    run = Telling(Case("DescribeAcls", "0-3", story, 1, alone=False), version, addresses)
    await story(run)
    await run.close()
    return run


async def test_lists_are_administered_as_on_kafka() -> None:
    if reason := why_absent():
        pytest.skip(f"NOT COMPARED WITH KAFKA: {reason}")
    different, asked = [], 0
    async with KafkaCluster(properties=PROPERTIES) as kafka, Cluster(1, properties=PROPERTIES) as ours:
        where = {1: ours.address(1)}
        for story in STORIES:
            for version in VERSIONS:
                theirs = await told(story, version, kafka.addresses)
                mine = await told(story, version, where)
                for one, other in zip(theirs.answers, mine.answers, strict=True):
                    asked += 1
                    different += [
                        f"{one.what} {path}: Kafka {a!r}, ours {b!r}: {one.request}"
                        for path, a, b in unequal(in_order(one.content), in_order(other.content))
                    ]
    assert asked > 300
    assert different == [], "\n".join(different)
