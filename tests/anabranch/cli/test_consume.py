"""`anabranch consume` shows records in key order across resizes, from and to given positions."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import click
import pytest
from click.testing import CliRunner

from anabranch import Admin, Cluster, Consumer, NewTopic, Producer, TopicPartition
from anabranch.cli.consume import _ends, parse_start
from anabranch.cli.main import cli
from tests.anabranch.cli.conftest import Command


def test_each_key_is_in_order_across_splits_and_merges(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-servers", servers)
    assert anabranch("topics", "create", "delta", "--partitions", "2", *at).exit_code == 0
    for part, count in enumerate((5, 3, 4)):
        lines = "".join(f"key-{number % 30}:{part * 300 + number}\n" for number in range(300))
        produced = CliRunner().invoke(cli, ["produce", "delta", "--separator", ":", *at], input=lines)
        assert produced.exit_code == 0, produced.output
        assert anabranch("topics", "alter", "delta", "--partitions", str(count), *at).exit_code == 0
    result = anabranch("consume", "delta", "--until-end", "--json", *at)
    assert result.exit_code == 0, result.output
    numbers = defaultdict(list)
    for one in map(json.loads, result.output.splitlines()):
        numbers[one["key"]].append(int(one["value"]))
    assert len(numbers) == 30
    assert all(one == sorted(set(one)) and len(one) == 30 for one in numbers.values())


def test_start_end_and_limit_are_applied(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-servers", servers)
    assert anabranch("topics", "create", "ends", "--partitions", "2", *at).exit_code == 0
    now = datetime.now(UTC)
    times_ms = [int((now - timedelta(hours=hours)).timestamp() * 1000) for hours in (5, 3, 1)]
    for partition in range(2):
        lines = "\n".join(
            json.dumps({"value": f"{hour}", "timestamp": time_ms}) for hour, time_ms in enumerate(times_ms)
        )
        words = ["produce", "ends", "--json", "--partition", str(partition), *at]
        assert CliRunner().invoke(cli, words, input=lines).exit_code == 0

    def values(*words: str) -> list[str]:
        result = anabranch("consume", "ends", "--values", *words, *at)
        assert result.exit_code == 0, result.output
        return sorted(result.output.split())

    assert values("--until-end") == ["0", "0", "1", "1", "2", "2"]
    assert values("--until-end", "--partition", "1") == ["0", "1", "2"]
    assert values("--until-end", "--from", "4h") == ["1", "1", "2", "2"]
    assert values("--until-end", "--from", (now - timedelta(hours=2)).isoformat()) == ["2", "2"]
    assert values("--until-end", "--from", "1m") == []
    assert values("--until-end", "--from", "latest") == []
    assert values("--until-end", "--from", "2", "--partition", "0") == ["2"]
    assert values("--timeout", "1", "--from", "4") == [], "beyond the end is not the beginning"
    assert len(values("--count", "4")) == 4
    assert values("--count", "9", "--timeout", "0.1", "--from", "1", "--partition", "0") == ["1", "2"]
    plain = anabranch("consume", "ends", "--count", "1", "--partition", "1", *at).output
    assert plain.startswith("ends-1@0  ") and plain.endswith("  null  0\n")


def test_group_continues_at_its_commit(servers: str, anabranch: Command) -> None:
    at = ("--group", "readers", "--values", "--bootstrap-servers", servers)
    assert anabranch("produce", "grouped", *map(str, range(10)), "--bootstrap-servers", servers).exit_code == 0
    assert anabranch("consume", "grouped", "--count", "4", *at).output.split() == ["0", "1", "2", "3"]
    assert anabranch("consume", "grouped", "--until-end", *at).output.split() == ["4", "5", "6", "7", "8", "9"]
    assert anabranch("consume", "grouped", "--until-end", *at).output == ""
    assert anabranch("consume", "grouped", "--until-end", "--timeout", "0", *at).output == "", "ended while it joins"


def test_format_prints_records_as_in_kcat(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-servers", servers)
    lines = "a:1\nb:2\n"
    words = ["produce", "formatted", "--separator", ":", "--partition", "0", *at]
    assert CliRunner().invoke(cli, words, input=lines).exit_code == 0
    shown = anabranch("consume", "formatted", "--until-end", "-f", r"%t-%p@%o %k=%s\n", *at)
    assert (shown.exit_code, shown.output) == (0, "formatted-0@0 a=1\nformatted-0@1 b=2\n")


def test_format_with_an_unknown_token_or_a_second_style_is_refused(anabranch: Command) -> None:
    for words, reason in [(("-f", "%x"), "--format: unknown token %x;"), (("-f", "%s", "--json"), "not both")]:
        refused = anabranch("consume", "formatted", *words)
        assert (refused.exit_code, reason in refused.output) == (2, True), refused.output


def test_unreadable_topics_and_options_are_explained(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-servers", servers)
    assert anabranch("topics", "create", "empty", *at).exit_code == 0
    for words, code, reason in [
        (("nowhere", "--until-end"), 1, "there is no topic nowhere"),
        (("empty", "--partition", "4"), 2, "there is no partition 4"),
        (("empty", "--from", "yesterday"), 2, "--from must be earliest, latest"),
        (
            ("empty", "--group", "g", "--from", "3"),
            2,
            "a group reads all partitions from its committed offsets: `anabranch groups reset` changes them",
        ),
    ]:
        result = anabranch("consume", *words, *at)
        assert (result.exit_code, reason in result.output) == (code, True), result.output
    waits = anabranch("consume", "nowhere", "empty", "--timeout", "0", *at)
    assert (waits.exit_code, waits.output) == (0, "there is no topic nowhere yet; waiting for it\n")


def test_closed_output_stops_the_command(servers: str, anabranch: Command) -> None:
    assert anabranch("produce", "endless", *map(str, range(2000)), "--bootstrap-servers", servers).exit_code == 0
    words = [sys.executable, "-m", "anabranch.cli.main", "consume", "endless", "--bootstrap-servers", servers]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        anabranch("produce", "endless", *["x" * 100] * 2000, "--bootstrap-servers", servers)
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_start_is_offset_time_or_age() -> None:
    now = datetime(2026, 11, 23, 12, tzinfo=UTC)
    assert parse_start("90", now=now) == 90
    assert parse_start("90m", now=now) == datetime(2026, 11, 23, 10, 30, tzinfo=UTC)
    assert parse_start("2026-11-23T10:00", now=now) == datetime(2026, 11, 23, 10, tzinfo=UTC)
    assert parse_start("2026-11-23T10:00+02:00", now=now) == datetime(2026, 11, 23, 8, tzinfo=UTC)
    for end in ("earliest", "latest"):
        assert parse_start(end, now=now) is None
    with pytest.raises(click.UsageError):
        parse_start("5w", now=now)


async def test_end_of_a_partition_that_a_merge_has_removed_is_not_waited_for() -> None:
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin, asyncio.timeout(30):
        await admin.create_topics([NewTopic(name="orders", partitions=3)])
        async with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            await consumer.assign([TopicPartition("orders", index) for index in range(3)])
            async with Producer(cluster.bootstrap_servers) as producer:
                await producer.send_and_wait("orders", b"x", partition=0)
            await admin.create_partitions("orders", 2, allow_shrink=True)
            await admin.wait_until(lambda metadata: 2 not in metadata.topics["orders"].partitions, "orders")
            assert await _ends(consumer, ()) == {TopicPartition("orders", 0): 1}
