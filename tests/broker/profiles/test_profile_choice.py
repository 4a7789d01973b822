"""Parsing the profiles of a cluster's nodes, and errors."""

from __future__ import annotations

import pytest

from anabranch.broker.config.config_def import ConfigError
from anabranch.broker.profiles.profile_choice import versions_of


def test_version_is_chosen_for_all_or_by_broker() -> None:
    assert versions_of("4.1", [1, 2]) == {1: "4.1", 2: "4.1"}
    assert versions_of("1=3.5, 2=4.0", [1, 2, 3]) == {1: "3.5", 2: "4.0", 3: "3.9"}
    assert versions_of({3: "4.2"}, [1, 3]) == {1: "3.9", 3: "4.2"}
    assert versions_of("", [1], "2.8") == {1: "2.8"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("5.0", "'5.0' is no version of Kafka"),
        ("1=", "'1=' is no ID=VERSION"),
        ("4.1,2=4.0", "'4.1' is no ID=VERSION"),
        ("a=4.1", "'a=4.1' is no ID=VERSION"),
        ("7=4.1", "there is no node 7; there are 1, 2"),
        ("1=9", "'9' is no version"),
    ],
)
def test_malformed_choice_is_refused_with_the_syntax(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        versions_of(text, [1, 2])
