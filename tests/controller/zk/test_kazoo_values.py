"""kazoo's errors, results and logins in the port's terms."""

from __future__ import annotations

import pytest
from kazoo import exceptions as kz

from anabranch.controller.zk import session as zk
from anabranch.controller.zk.access import Login
from anabranch.controller.zk.kazoo_values import login_arguments, raise_first_failure, translate
from anabranch.controller.zk.session import Check, Set


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (kz.NoNodeError, zk.NoNode),
        (kz.SessionMovedError, zk.ConnectionLoss),
        (kz.OperationTimeoutError, zk.ConnectionLoss),
        (kz.MarshallingError, zk.ZkError),
    ],
)
def test_error_of_kazoo_becomes_the_ports(theirs: type[Exception], ours: type[zk.ZkError]) -> None:
    error = translate(theirs(), "/a", 3)
    assert type(error) is ours and isinstance(error, zk.ZkError) and error.index == 3


def test_other_errors_are_not_translated() -> None:
    bug = ZeroDivisionError()
    assert translate(bug, "/a") is bug


def test_failed_multi_raises_the_error_of_its_cause() -> None:
    ops = [Set("/a", b""), Check("/b", 1), Set("/c", b"")]
    with pytest.raises(zk.BadVersion) as failed:
        raise_first_failure(ops, [kz.RolledBackError(), kz.BadVersionError(), kz.RuntimeInconsistency()])
    assert failed.value.index == 1
    raise_first_failure(ops, ["/a", None, "/c"])


def test_each_scheme_of_a_login_has_its_argument() -> None:
    assert login_arguments(None) == {}
    assert login_arguments(Login("digest", "u", "p")) == {"auth_data": [("digest", "u:p")]}
    assert login_arguments(Login("sasl", "u", "p"))["sasl_options"]["mechanism"] == "DIGEST-MD5"
