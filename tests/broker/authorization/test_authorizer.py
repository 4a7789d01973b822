"""Decisions are those of Kafka's AclAuthorizer; cached ones do not outlive their entries."""

from __future__ import annotations

import pytest

from anabranch.broker.authorization import authorizer
from anabranch.broker.authorization.authorizer import Authorizer, super_users_in
from anabranch.protocol.acls import Acl, Operation, PatternType, Permission, ResourcePattern, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
HOST = "10.0.0.1"


def entry(operation: Operation, *, deny: bool = False, who: str = "User:alice", host: str = "*") -> Acl:
    return Acl(who, host, operation, Permission.DENY if deny else Permission.ALLOW)


def literal(name: str, resource_type: ResourceType = TOPIC) -> ResourcePattern:
    return ResourcePattern(resource_type, name)


def prefix(name: str, resource_type: ResourceType = TOPIC) -> ResourcePattern:
    return ResourcePattern(resource_type, name, PatternType.PREFIXED)


def having(*rules: tuple[ResourcePattern, Acl], open_without_acls: bool = False, supers: str = "") -> Authorizer:
    made = Authorizer(super_users_in(supers), open_without_acls=open_without_acls)
    made.set_loaded()
    for pattern, acl in rules:
        made.replace(pattern, {*made.acls.get(pattern, ()), acl})
    return made


@pytest.mark.parametrize(
    ("rules", "operation", "name", "allowed"),
    [
        ([], READ, "t", False),
        ([(literal("t"), entry(READ))], READ, "t", True),
        ([(literal("t"), entry(READ))], WRITE, "t", False),
        ([(literal("t"), entry(READ))], READ, "t2", False),
        ([(literal("t", GROUP), entry(READ))], READ, "t", False),
        ([(literal("*"), entry(READ))], READ, "t", True),
        ([(prefix("t-"), entry(READ))], READ, "t-1", True),
        ([(prefix("t-"), entry(READ))], READ, "t-", True),
        ([(prefix("t-"), entry(READ))], READ, "t", False),
        ([(prefix("*"), entry(READ))], READ, "t", False),
        ([(prefix("*"), entry(READ))], READ, "*t", True),
        ([(literal("t"), entry(READ, who="User:*"))], READ, "t", True),
        ([(literal("t"), entry(READ, who="User:bob"))], READ, "t", False),
        ([(literal("t"), entry(READ, who="Group:alice"))], READ, "t", False),
        ([(literal("t"), entry(READ, host=HOST))], READ, "t", True),
        ([(literal("t"), entry(READ, host="10.0.0.2"))], READ, "t", False),
        ([(literal("t"), entry(Operation.ALL))], WRITE, "t", True),
        # whoever denies, wins
        ([(literal("t"), entry(READ)), (literal("t"), entry(READ, deny=True))], READ, "t", False),
        ([(literal("t"), entry(READ)), (prefix("t"), entry(READ, deny=True))], READ, "t", False),
        ([(literal("t"), entry(READ)), (literal("*"), entry(READ, deny=True))], READ, "t", False),
        ([(literal("t"), entry(READ)), (literal("t"), entry(Operation.ALL, deny=True))], READ, "t", False),
        ([(literal("t"), entry(READ)), (literal("t"), entry(READ, deny=True, who="User:*"))], READ, "t", False),
        ([(literal("t"), entry(READ)), (literal("t"), entry(READ, deny=True, who="User:bob"))], READ, "t", True),
        ([(literal("t"), entry(READ)), (literal("t"), entry(READ, deny=True, host="10.0.0.2"))], READ, "t", True),
        # implied by what is allowed, never by what is denied
        ([(literal("t"), entry(READ))], DESCRIBE, "t", True),
        ([(literal("t"), entry(WRITE))], DESCRIBE, "t", True),
        ([(literal("t"), entry(Operation.DELETE))], DESCRIBE, "t", True),
        ([(literal("t"), entry(Operation.ALTER))], DESCRIBE, "t", True),
        ([(literal("t"), entry(Operation.CREATE))], DESCRIBE, "t", False),
        ([(literal("t"), entry(DESCRIBE))], READ, "t", False),
        ([(literal("t"), entry(Operation.ALTER_CONFIGS))], Operation.DESCRIBE_CONFIGS, "t", True),
        ([(literal("t"), entry(Operation.ALTER_CONFIGS))], DESCRIBE, "t", False),
        ([(literal("t"), entry(READ)), (literal("t"), entry(DESCRIBE, deny=True))], DESCRIBE, "t", False),
        ([(literal("t"), entry(DESCRIBE)), (literal("t"), entry(READ, deny=True))], DESCRIBE, "t", True),
    ],
)
def test_operation_is_allowed_or_denied_by_the_acls(
    rules: list[tuple[ResourcePattern, Acl]], operation: Operation, name: str, allowed: bool
) -> None:
    deciding = having(*rules)
    for _ in range(2):  # made, and remembered
        assert deciding.allows("User:alice", HOST, operation, TOPIC, name) is allowed


def test_super_user_is_allowed_despite_a_deny_acl() -> None:
    deciding = having((literal("t"), entry(READ, deny=True, who="User:*")), supers="User:alice")
    assert deciding.allows("User:alice", HOST, READ, TOPIC, "t")
    assert deciding.allows_some("User:alice", HOST, READ, TOPIC)
    assert not deciding.allows("User:bob", HOST, READ, TOPIC, "t")


def test_resource_without_acls_is_open_when_allowed_and_closes_with_the_first_acl() -> None:
    deciding = having(open_without_acls=True)
    assert deciding.allows("User:alice", HOST, READ, TOPIC, "t")
    deciding.replace(literal("t"), {entry(READ, who="User:bob")})
    assert not deciding.allows("User:alice", HOST, READ, TOPIC, "t")
    assert deciding.allows("User:alice", HOST, READ, TOPIC, "other")


@pytest.mark.parametrize("pattern", [literal("t"), literal("*"), prefix("t"), prefix("")])
def test_cached_decision_is_dropped_when_its_acls_change(pattern: ResourcePattern) -> None:
    deciding = having()
    assert not deciding.allows("User:alice", HOST, READ, TOPIC, "t")
    deciding.replace(pattern, {entry(READ), entry(WRITE), entry(READ, who="User:bob")})
    assert deciding.allows("User:alice", HOST, READ, TOPIC, "t")
    assert deciding.allows_some("User:alice", HOST, READ, TOPIC)
    deciding.replace(pattern, {entry(WRITE), entry(READ, who="User:bob")})
    assert not deciding.allows("User:alice", HOST, READ, TOPIC, "t")
    assert not deciding.allows_some("User:alice", HOST, READ, TOPIC)
    assert deciding.allows("User:alice", HOST, WRITE, TOPIC, "t")
    assert deciding.allows("User:bob", HOST, READ, TOPIC, "t")
    deciding.replace(pattern, ())
    assert not deciding.allows("User:bob", HOST, READ, TOPIC, "t")
    assert deciding.acls == {}


def test_removing_a_prefix_keeps_other_prefixes_of_its_length() -> None:
    deciding = having((prefix("aa"), entry(READ)), (prefix("bb"), entry(READ)))
    deciding.replace(prefix("aa"), {entry(READ), entry(WRITE)})
    deciding.replace(prefix("aa"), ())
    assert deciding.allows("User:alice", HOST, READ, TOPIC, "bb-1")


def test_decision_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer, "KEPT_DECISIONS", 10)
    deciding = having((literal("t3"), entry(READ)))
    answers = [deciding.allows("User:alice", HOST, READ, TOPIC, f"t{number}") for number in range(100)]
    assert answers == [number == 3 for number in range(100)]
    assert len(deciding._decided) <= 10


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([], False),
        ([(literal("t"), entry(WRITE))], True),
        ([(literal("t"), entry(READ))], False),
        ([(literal("t", GROUP), entry(WRITE))], False),
        ([(prefix("t"), entry(Operation.ALL))], True),
        ([(literal("*"), entry(WRITE))], True),
        ([(literal("t"), entry(WRITE, host="10.0.0.2"))], False),
        ([(literal("t"), entry(WRITE)), (literal("t"), entry(WRITE, deny=True))], False),
        ([(literal("t"), entry(WRITE)), (prefix("t"), entry(WRITE, deny=True))], False),
        ([(literal("t"), entry(WRITE)), (literal("u"), entry(WRITE, deny=True))], True),
        ([(prefix("tt"), entry(WRITE)), (prefix("t"), entry(WRITE, deny=True))], False),
        ([(prefix("t"), entry(WRITE)), (prefix("tt"), entry(WRITE, deny=True))], True),
        ([(literal("*"), entry(WRITE)), (prefix("t"), entry(WRITE, deny=True))], True),
        ([(literal("t"), entry(WRITE)), (literal("*"), entry(WRITE, deny=True))], False),
    ],
)
def test_allows_some_considers_allow_and_deny_acls(rules: list[tuple[ResourcePattern, Acl]], allowed: bool) -> None:
    assert having(*rules).allows_some("User:alice", HOST, WRITE, TOPIC) is allowed


def test_allows_some_in_an_open_cluster_unless_all_resources_are_denied() -> None:
    assert having(open_without_acls=True).allows_some("User:alice", HOST, WRITE, TOPIC)
    denied = having((literal("*"), entry(WRITE, deny=True)), open_without_acls=True)
    assert not denied.allows_some("User:alice", HOST, WRITE, TOPIC)


def test_operations_are_returned_as_a_bit_field() -> None:
    deciding = having((literal("t"), entry(READ)), supers="User:root")
    assert deciding.operations("User:alice", HOST, TOPIC, "t") == 1 << READ | 1 << DESCRIBE
    bits = {kind: deciding.operations("User:root", HOST, kind, "x") for kind in ResourceType}
    assert bits[TOPIC] == 3576
    assert bits[GROUP] == 328
    assert bits[ResourceType.CLUSTER] == 8096
    assert bits[ResourceType.TRANSACTIONAL_ID] == 272


def test_super_users_are_separated_by_semicolons() -> None:
    assert super_users_in("") == frozenset()
    assert super_users_in("User:a; User:CN=b,O=c:d ;") == {"User:a", "User:CN=b,O=c:d"}
    for wrong in ("User:a;;User:b", "alice", "User:", ":a"):
        with pytest.raises(ValueError, match="is not of the form"):
            super_users_in(wrong)


def test_authorizer_denies_until_acls_are_loaded() -> None:
    authorizer = Authorizer({"User:admin"}, open_without_acls=True)
    assert not authorizer.allows("User:alice", HOST, READ, TOPIC, "t")
    assert authorizer.allows("User:admin", HOST, READ, TOPIC, "t")
    authorizer.set_loaded()
    assert authorizer.allows("User:alice", HOST, READ, TOPIC, "t")
