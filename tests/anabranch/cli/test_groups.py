"""`anabranch groups` with a group that stops halfway: gates, draining, reset, deletion."""

from __future__ import annotations

import asyncio
import time

from click.testing import Result

from anabranch import Admin, Cluster, Consumer, NewTopic, Producer, TopicPartition
from anabranch.faults.rule import Rule
from tests.anabranch.cli.conftest import Command


async def fill(servers: str, topic: str, records: int) -> None:
    async with Producer(servers) as producer:
        for number in range(records):
            await producer.send(topic, b"v", b"key-%d" % (number % 50))
        await producer.flush()


async def read(servers: str, topic: str, least: int) -> int:
    """Read at least so many records and commit them; how many it were."""
    settings = {"group_id": f"{topic}-readers", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with Consumer(topic, bootstrap_servers=servers, **settings) as consumer:  # type: ignore[arg-type]
        seen = 0
        while seen < least:
            seen += sum(map(len, (await consumer.getmany(timeout_ms=200, max_records=50)).values()))
            await consumer.commit()
    return seen


def test_stopped_group_shows_closed_gates(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-servers", servers)
    assert anabranch("topics", "create", "river", "--partitions", "2", *at).exit_code == 0
    asyncio.run(fill(servers, "river", 400))
    planned = anabranch("topics", "alter", "river", "--partitions", "4", "--dry-run", *at)
    assert planned.output.splitlines()[0] == "river: 2 -> 4 partitions, generation 1"
    assert planned.output.endswith("nothing was changed\n")
    assert anabranch("topics", "describe", "river", *at).output.startswith("river: 2 partitions")
    for count in ("4", "2"):
        assert anabranch("topics", "alter", "river", "--partitions", count, *at).exit_code == 0
        asyncio.run(fill(servers, "river", 400))

    picture = anabranch("topics", "lineage", "river", *at).output.splitlines()
    assert picture[3].startswith("         0 ━━━━━━┯")
    assert any("merged into 1" in line for line in picture)
    no_such = anabranch("topics", "lineage", "river", "--partition", "9", *at)
    assert (no_such.exit_code, "has no partition 9" in no_such.output) == (2, True)

    seen = asyncio.run(read(servers, "river", 60))
    gates = anabranch("groups", "gates", "river-readers", *at).output
    assert "stops at" in gates and "NO MEMBER reads it; one must read and commit" in gates
    assert "river-readers" in anabranch("topics", "drain", "river", *at).output
    kept = anabranch("topics", "drain", "river", "--delete-drained", *at).output
    assert "kept the rest for river-readers" in kept

    asyncio.run(read(servers, "river", 1200 - seen))
    assert anabranch("groups", "gates", "river-readers", *at).output == "river-readers: every gate is open\n"
    tried = anabranch(
        "groups",
        "reset",
        "river-readers",
        "river",
        "--partition",
        "0",
        "--to",
        "0",
        "--reset-lineage",
        "--dry-run",
        *at,
    )
    assert "river-2 " in tried.output and tried.output.endswith("nothing was changed\n")
    back = ("groups", "reset", "river-readers", "river", "--partition", "0", "--to", "0", "--dry-run", *at)
    refused = anabranch(*back)
    assert (refused.exit_code, "later records of the same keys are in river-2" in refused.output) == (2, True)
    assert "river-2" not in anabranch(*back, "--only-named").output
    typo = ("groups", "reset", "river-reader", "river", "--to", "latest", *at)
    unknown = anabranch(*typo)
    assert (unknown.exit_code, "`anabranch groups list` shows the groups; --create creates one" in unknown.output) == (
        1,
        True,
    )
    assert anabranch(*typo, "--create").exit_code == 0
    deleted = anabranch("topics", "drain", "river", "--delete-drained", *at).output
    assert "river-2: deleted records before offset" in deleted and "kept" not in deleted
    assert "Stable" not in anabranch("groups", "list", *at).output
    assert anabranch("groups", "reset", "river-readers", "river", "--to", "latest", *at).exit_code == 0
    assert anabranch("groups", "delete", "river-readers", *at).output == "deleted river-readers\n"
    gone = anabranch("groups", "describe", "river-readers", *at)
    assert (gone.exit_code, "GROUP_ID_NOT_FOUND" in gone.output) == (1, True)


async def test_reset_of_a_group_with_members_names_them_and_changes_nothing(servers: str, anabranch: Command) -> None:
    async def command(*words: str) -> Result:
        return await asyncio.to_thread(anabranch, *words, "--bootstrap-servers", servers)  # it has a loop of its own

    assert (await command("topics", "create", "lived", "--partitions", "1")).exit_code == 0
    await fill(servers, "lived", 3)
    reset = ("groups", "reset", "lived-readers", "lived", "--to", "earliest")
    async with Consumer(
        "lived",
        bootstrap_servers=servers,
        group_id="lived-readers",
        client_id="one-reader",
        auto_offset_reset="earliest",
    ) as consumer:
        while not await consumer.getmany(timeout_ms=200):
            pass
        await consumer.commit()
        refused, dry = await command(*reset), await command(*reset, "--dry-run")
    assert (refused.exit_code, "lived-0 " in refused.output) == (1, False), refused.output
    assert "nothing was reset: lived-readers has active members; stop them first: one-reader" in refused.output
    table = "partition  old  new  change\nlived-0      3    0  -3\n"
    assert (dry.exit_code, dry.output) == (0, f"{table}nothing was changed\n")
    done = await command(*reset)
    assert done.output == f"{table}lived-readers continues from there\n"


async def test_reset_to_a_time_or_by_a_number_of_offsets_stays_within_the_log(servers: str, anabranch: Command) -> None:
    async def reset(to: str, *words: str) -> list[str]:
        given = ("groups", "reset", "timed-readers", "timed", "--to", to, *words, "--bootstrap-servers", servers)
        result = await asyncio.to_thread(anabranch, *given)
        lines: list[str] = result.output.splitlines()
        return [line.removeprefix("timed-0").strip() for line in lines if line.startswith("timed-0 ")] or lines

    now_ms = int(time.time() * 1000)
    async with Admin(servers) as admin, Producer(servers) as producer:
        await admin.create_topics([NewTopic(name="timed", partitions=1)])
        for hours in (5, 3, 1):
            await producer.send("timed", b"v", timestamp_ms=now_ms - hours * 3_600_000)
        await producer.flush()
    (refused,) = [line for line in await reset("-1", "--create") if line.startswith("Error")]
    assert "timed-0 has no committed offset, which is needed for -1" in refused
    assert await reset("4h", "--create") == ["-    1"]
    assert await reset("1m", "--dry-run") == ["1    3  +2"]
    assert await reset("-100", "--dry-run") == ["1    0  -1"]
    assert await reset("+1", "--dry-run") == ["1    2  +1"]
    assert await reset("+100") == ["1    3  +2"]
    assert await reset("2", "--dry-run") == ["3    2  -1"]


async def test_reset_to_an_offset_outside_the_log_warns_and_stops_at_its_end(anabranch: Command) -> None:
    """As kafka-consumer-groups.sh does: a group could otherwise commit an offset that no record will have for long."""
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="short", partitions=1)])
        async with Producer(cluster.bootstrap_servers) as producer:
            for _ in range(3):
                await producer.send("short", b"v", partition=0)
            await producer.flush()
        await admin.delete_records({TopicPartition("short", 0): 1})

        async def reset(to: str) -> list[str]:
            given = ("groups", "reset", "readers", "short", "--to", to, "--create")
            at = ("--bootstrap-servers", cluster.bootstrap_servers)
            result = await asyncio.to_thread(anabranch, *given, *at)
            assert result.exit_code == 0, result.output
            lines: list[str] = result.output.splitlines()
            return [lines[0], *(line for line in lines if line.startswith("short-0"))]

        assert await reset("2") == ["partition  old  new  change", "short-0      -    2"]
        behind = "warning: 100 is behind the end of short-0, 3, which is used instead"
        assert await reset("100") == [behind, "short-0      2    3  +1"]
        before = "warning: 0 is before the start of short-0, 1, which is used instead"
        assert await reset("0") == [before, "short-0      3    1  -2"]


async def test_reset_tells_the_outcome_of_each_partition(anabranch: Command) -> None:
    refusing = Rule(api=("OffsetCommit",), topic=("half",), partition=(1,), error="OFFSET_METADATA_TOO_LARGE")
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="half", partitions=2)])
        await admin.wait_for_topic("half")
        reset = ("groups", "reset", "fresh", "half", "--to", "0", "--create")
        with cluster.faults(refusing):
            result = await asyncio.to_thread(anabranch, *reset, "--bootstrap-servers", cluster.bootstrap_servers)
    assert result.exit_code == 1
    assert result.output.splitlines()[:3] == [
        "partition  old  new  change",
        "half-0       -    0",
        "half-1       -    -  OFFSET_METADATA_TOO_LARGE",
    ]
    assert "1 of 2 partitions of fresh were not reset" in result.output


def test_feature_required_by_topics_cannot_be_downgraded(servers: str, anabranch: Command) -> None:
    at = ("--bootstrap-servers", servers)
    assert "finalized at 1" in anabranch("features", "describe", *at).output
    assert anabranch("topics", "create", "one", "--partitions", "1", *at).exit_code == 0
    assert anabranch("topics", "alter", "one", "--partitions", "2", *at).exit_code == 0
    refused = anabranch("features", "downgrade", "reshard.version", *at)
    assert (refused.exit_code, "Resized topics need" in refused.output) == (1, True)
    assert "to the same value" in anabranch("features", "upgrade", "reshard.version", *at).output
