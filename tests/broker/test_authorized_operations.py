"""The bits are those that Kafka's own clients decode."""

from __future__ import annotations

from anabranch.broker import authorized_operations


def test_bits_are_kafkas_operations() -> None:
    """Numbers of Kafka's `AclOperation`: a topic has all of 3 to 8 but none of the cluster's, then 10 and 11."""
    bits = {number for number in range(32) if authorized_operations.TOPIC >> number & 1}
    assert bits == {3, 4, 5, 6, 7, 8, 10, 11}
    assert authorized_operations.GROUP == 1 << 3 | 1 << 6 | 1 << 8
    assert {number for number in range(32) if authorized_operations.CLUSTER >> number & 1} == {5, 7, 8, 9, 10, 11, 12}
