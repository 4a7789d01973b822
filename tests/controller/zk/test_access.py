"""ACLs of znodes: Kafka's rule, path by path."""

from __future__ import annotations

import pytest

from anabranch.controller.zk import paths
from anabranch.controller.zk.access import Access, Login, access_to, login_in


@pytest.mark.parametrize(
    ("path", "access"),
    [
        ("/consumers", Access.OPEN),
        ("/consumers/g", Access.READABLE),
        ("/brokers", Access.READABLE),
        ("/brokers/ids/1", Access.READABLE),
        ("/config", Access.READABLE),
        ("/config/topics/t", Access.READABLE),
        ("/config/users", Access.PRIVATE),
        ("/config/users/alice", Access.PRIVATE),
        ("/config/brokers/1", Access.PRIVATE),
        ("/kafka-acl/Topic/t", Access.READABLE),
        ("/delegation_token/token_changes", Access.READABLE),
        ("/delegation_token/tokens/x", Access.PRIVATE),
        ("/controller", Access.READABLE),
    ],
)
def test_znodes_of_authenticated_brokers_have_acls(path: str, access: Access) -> None:
    assert access_to(path, secured=True) is access
    assert access_to(path, secured=False) is Access.OPEN


def test_every_created_path_is_readable_except_users_brokers_and_old_consumers() -> None:
    others = [path for path in paths.ALWAYS_CREATED if access_to(path, secured=True) is not Access.READABLE]
    assert sorted(others) == ["/config/brokers", "/config/users", "/consumers"]


def test_password_may_contain_colons_and_spaces() -> None:
    assert login_in("sasl:kafka:a:b c") == Login("sasl", "kafka", "a:b c")
    assert "secret" not in repr(login_in("digest:kafka:secret"))


@pytest.mark.parametrize("text", ["", "kafka:secret", "digest::secret", "digest:kafka:", "x509:a:secret", "secret"])
def test_malformed_login_is_refused_without_quoting_it(text: str) -> None:
    with pytest.raises(ValueError, match="write digest:USER:PASSWORD") as caught:
        login_in(text)
    assert "secret" not in str(caught.value)
