"""`anabranch topics` changes and shows topics, and explains errors."""

from __future__ import annotations

from tests.anabranch.cli.conftest import Command


def test_existing_topic_is_refused_unless_allowed(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-servers", servers)
    assert anabranch("topics", "create", "once", "--partitions", "2", *at).output == "created once\n"
    again = anabranch("topics", "create", "once", "--partitions", "5", *at)
    assert again.exit_code == 1
    assert "TOPIC_ALREADY_EXISTS" in again.output
    kept = anabranch("topics", "create", "once", "--partitions", "5", "--if-not-exists", *at)
    assert (kept.exit_code, kept.output) == (0, "once exists\n")
    assert anabranch("topics", "describe", "once", *at).output.startswith("once: 2 partitions")


def test_options_of_kafka_tools_are_accepted(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-server", servers)
    assert anabranch("topics", "create", "spelled", "--replication-factor", "1", *at).output == "created spelled\n"
    assert "isr 1 of 1" in anabranch("topics", "describe", "spelled", *at).output


def test_missing_topic_to_delete_is_named(servers: str, anabranch: Command) -> None:
    refused = anabranch("topics", "delete", "nosuch", "--bootstrap-servers", servers)
    assert refused.exit_code == 1 and "nosuch" in refused.output and "no such topic" in refused.output


def test_topic_is_split_merged_listed_and_deleted(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-servers", servers)
    assert anabranch("topics", "create", "life", "--partitions", "2", *at).exit_code == 0
    for count in ("4", "3"):
        assert anabranch("topics", "alter", "life", "--partitions", count, *at).exit_code == 0
    assert anabranch("topics", "describe", "life", *at).output.startswith("life: 3 partitions")
    assert "life" in anabranch("topics", "list", *at).output.split()
    assert anabranch("topics", "delete", "life", *at).output == "deleted life\n"
    assert "life" not in anabranch("topics", "list", *at).output.split()


def test_more_replicas_than_brokers_are_refused_with_remedy(servers: str, anabranch: Command) -> None:
    refused = anabranch("topics", "create", "wide", "--replicas", "3", "--bootstrap-servers", servers)
    assert refused.exit_code == 1
    assert "INVALID_REPLICATION_FACTOR" in refused.output
    assert "write --replicas with at most" in refused.output


def test_topic_config_is_shown_and_changed(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-servers", servers)
    created = anabranch("topics", "create", "set", "--config", "retention.ms=5", *at)
    assert created.exit_code == 0
    assert anabranch("topics", "config", "set", *at).output == "retention.ms=5\n"
    changed = anabranch("topics", "config", "set", "--config", "segment.bytes=7000", "--unset", "retention.ms", *at)
    assert (changed.exit_code, changed.output) == (0, "segment.bytes=7000\n")
    everything = anabranch("topics", "config", "set", "--all", *at).output
    assert "retention.ms=604800000  (default) How long records are kept; -1: for ever." in everything
    spelled = anabranch("topics", "config", "set", "--set", "segment.bytes=8000", *at)
    assert (spelled.exit_code, spelled.output) == (0, "segment.bytes=8000\n")
    wrong = anabranch("topics", "config", "set", "--config", "retention.ms=soon", *at)
    assert wrong.exit_code == 1
    assert "retention.ms='soon' must be a whole number" in wrong.output
    assert anabranch("topics", "config", "set", "--set", "retention.ms", *at).exit_code == 2
