"""One front at a time holds the lease on an agent, until it ends the lease or does not renew it."""

from __future__ import annotations

import pytest

from anabranch.control.lease import Lease, LeaseRefused


def test_second_front_is_refused_while_the_lease_lives_and_accepted_after_it() -> None:
    lease = Lease(10)
    lease.renew("a", 0)
    with pytest.raises(LeaseRefused, match=r"front a controls this node, for at least 0.5 s more"):
        lease.renew("b", 9.5)
    assert lease.holder(9.9) == "a" and lease.holder(10) == ""
    lease.renew("b", 10)
    assert lease.holder(10) == "b"


def test_renewal_extends_the_lease_of_its_holder() -> None:
    lease = Lease(10)
    lease.renew("a", 0)
    lease.renew("a", 9)
    assert lease.holder(18.9) == "a" and lease.ends_s == 19


def test_check_names_the_holder_or_says_that_there_is_none() -> None:
    lease = Lease(10)
    with pytest.raises(LeaseRefused, match="no front controls this node; front a needs the lease first"):
        lease.check("a", 0)
    lease.renew("a", 0)
    lease.check("a", 9.9)
    with pytest.raises(LeaseRefused, match="front a controls this node; front b needs"):
        lease.check("b", 1)


def test_ended_lease_is_free_at_once() -> None:
    lease = Lease(10)
    lease.renew("a", 0)
    assert lease.end() == "a"
    lease.renew("b", 1)
    assert lease.holder(1) == "b"


@pytest.mark.parametrize("name", ["", "x" * 101])
def test_front_without_a_usable_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="front is a name"):
        Lease().renew(name, 0)
    with pytest.raises(ValueError, match="front is a name"):
        Lease().check(name, 0)
