"""Invalid settings of an instance are refused at its start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.clients.streams.config import AT_LEAST_ONCE, StreamsConfig


def config(**settings: Any) -> StreamsConfig:
    settings = {"bootstrap_servers": "b:1", **settings}
    return StreamsConfig(application_id="a", state_dir=Path("s"), **settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"processing_guarantee": "twice"}, "processing_guarantee is one of .*'twice'"),
        ({"task_assignor": "none"}, "task_assignor is one of"),
        ({"rack_aware_assignment_strategy": "x"}, "rack_aware_assignment_strategy is one of"),
        ({"rack_aware_assignment_tags": tuple("abcdef")}, "rack_aware_assignment_tags has 6 tags; 5 are the limit"),
        ({"probing_rebalance_interval_ms": 10_000}, "probing_rebalance_interval_ms must be 60000 or more: 10000"),
        ({"num_standby_replicas": -1}, "num_standby_replicas must be 0 or more: -1"),
        ({"rebalance_protocol": "lazy"}, "eager or cooperative, not 'lazy'"),
        ({"changelog_auto_offset_reset": "latest"}, "earliest or none, not 'latest'"),
        ({"application_server": "nowhere"}, "application_server: 'nowhere' is not host:port"),
        ({"bootstrap_servers": "nowhere"}, "bootstrap server 'nowhere' is not of the form"),
        ({"application_server": ":80"}, "application_server: ':80' is not host:port"),
        ({"processing_handler": "ignore"}, "processing_handler is one of .*'ignore'"),
        ({"deserialization_handler": "ignore"}, "deserialization_handler is one of"),
        ({"processing_handler": "dead-letter"}, "if, and only if"),
        ({"commit_interval_ms": -1}, "commit_interval_ms must be 0 or more: -1"),
        ({"max_poll_records": 0}, "max_poll_records must be 1 or more: 0"),
        ({"commit_interval_ms": 10_001}, r"transaction_timeout_ms \(10000\) must not be below commit_interval_ms"),
        ({"errors_dead_letter_queue_topic_name": "dead"}, "if, and only if"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        config(**settings)


@pytest.mark.parametrize("name", ["", ".", "..", "../other", "/etc", "a/b", "a\0b"])
def test_application_id_that_is_no_directory_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="application_id names a directory"):
        StreamsConfig(application_id=name, bootstrap_servers="b:1", state_dir=Path("s"))


def test_consistent_settings_are_accepted() -> None:
    assert config().exactly_once and not config(processing_guarantee=AT_LEAST_ONCE).exactly_once
    config(commit_interval_ms=10_000)
    config(commit_interval_ms=30_000, processing_guarantee=AT_LEAST_ONCE)
    config(deserialization_handler="dead-letter", errors_dead_letter_queue_topic_name="dead")
