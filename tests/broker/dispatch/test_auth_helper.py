"""Authorized operations use Kafka's numbers and codes; without an authorizer everything is allowed."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from anabranch.broker.authorization.authorizer import Authorizer
from anabranch.broker.authorization.peer import Peer
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.dispatch import auth_helper
from anabranch.broker.dispatch.request_context import RequestContext
from anabranch.broker.profiles.profile import profile_for
from anabranch.protocol.acls import Acl, Operation, Permission, ResourcePattern, ResourceType
from anabranch.protocol.errors import ErrorCode, KafkaError


class Node:
    """The services that are asked."""

    def __init__(self, authorizer: Authorizer | None) -> None:
        self.profile = profile_for("3.9")
        self.authorizer = authorizer
        self.settings = BrokerSettings()
        self.log = logging.getLogger("anabranch.broker")


def asked_by(principal: str, authorizer: Authorizer | None) -> RequestContext:
    return RequestContext(cast("Any", Node(authorizer)), 0, "c", Peer("127.0.0.1", principal=principal))


def numbers(bits: int) -> set[int]:
    return {number for number in range(32) if bits >> number & 1}


def test_authorized_operations_bits_equal_kafkas() -> None:
    """Numbers of Kafka's `AclOperation`: topics have 3 to 8, 10 and 11."""
    everybody = asked_by("User:a", None)
    assert numbers(auth_helper.authorized_operations(everybody, ResourceType.TOPIC, "t")) == {3, 4, 5, 6, 7, 8, 10, 11}
    assert auth_helper.authorized_operations(everybody, ResourceType.GROUP, "g") == 1 << 3 | 1 << 6 | 1 << 8
    assert numbers(auth_helper.authorized_cluster_operations(everybody)) == {5, 7, 8, 9, 10, 11, 12}


def test_cluster_operations_need_the_describe_right() -> None:
    authorizer = Authorizer()
    cluster = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
    authorizer.replace(cluster, [Acl("User:a", "*", Operation.CREATE, Permission.ALLOW)])
    assert auth_helper.authorized_cluster_operations(asked_by("User:a", authorizer)) == 0
    authorizer.replace(
        cluster, [Acl("User:a", "*", one, Permission.ALLOW) for one in (Operation.CREATE, Operation.DESCRIBE)]
    )
    assert numbers(auth_helper.authorized_cluster_operations(asked_by("User:a", authorizer))) == {5, 8}


@pytest.mark.parametrize(("kind", "code"), list(auth_helper.DENIED_CODE.items()))
def test_a_refusal_has_the_code_of_the_resource(kind: ResourceType, code: ErrorCode) -> None:
    auth_helper.authorize(asked_by("User:a", None), Operation.DESCRIBE, kind, "x")
    auth_helper.authorize(asked_by("User:admin", Authorizer(["User:admin"])), Operation.DESCRIBE, kind, "x")
    with pytest.raises(KafkaError) as refused:
        auth_helper.authorize(asked_by("User:a", Authorizer()), Operation.DESCRIBE, kind, "x")
    assert refused.value.code is code


def test_unauthorized_broker_principal_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise a cluster whose brokers are no super users would wait silently."""
    ctx = asked_by("User:b", Authorizer())
    for _ in range(3):
        with pytest.raises(KafkaError):
            auth_helper.authorize_broker(ctx)
    assert [one.getMessage() for one in caplog.records] == [
        "User:b from 127.0.0.1 may not act as a broker. If it is a broker of this cluster, add its principal to "
        "super.users"
    ]
