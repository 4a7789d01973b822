"""The application of a chaos run numbers the records of each key."""

from __future__ import annotations

from anabranch.chaos.clients import TOPIC
from anabranch.chaos.numbering_application import NUMBERED, topology
from anabranch.clients.streams.serdes import TEXT
from anabranch.testing import TopologyTestDriver


def test_records_of_each_key_are_numbered_from_one() -> None:
    with TopologyTestDriver(topology()) as driver:
        for key, value in (("a", "a/0"), ("b", "b/0"), ("a", "a/1"), ("a", "a/2")):
            driver.pipe(TOPIC, key, value)
        numbered = [(one.key, one.value) for one in driver.read(NUMBERED, value=TEXT)]
    assert numbered == [(b"a", "1|a/0"), (b"b", "1|b/0"), (b"a", "2|a/1"), (b"a", "3|a/2")]
