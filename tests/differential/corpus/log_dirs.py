"""DescribeLogDirs and AlterReplicaLogDirs."""

from __future__ import annotations

from anabranch.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from anabranch.protocol.apis.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.differential.case import Run, batch, case


@case("DescribeLogDirs")
async def sizes(run: Run) -> None:
    await run.create(name := run.name(), partitions=2)
    await run.append(name, batch(b"a"))
    await run.ask(DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=name, partitions=[0])]))
    await run.ask(DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=name, partitions=[1])]))
    await run.ask(DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=name, partitions=[7])]))
    await run.ask(DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=run.name("none"), partitions=[0])]))
    await run.ask(DescribeLogDirsRequest(topics=[]))


def into(path: str, *topics: tuple[str, list[int]]) -> AlterReplicaLogDirsRequest:
    """Move replicas to a directory."""
    rows = [AlterReplicaLogDirTopic(name=name, partitions=indexes) for name, indexes in topics]
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=rows)])


@case("AlterReplicaLogDirs")
async def elsewhere(run: Run) -> None:
    await run.create(name := run.name())
    here = (await run.prepare(DescribeLogDirsRequest(topics=[]), version=4)).results[0].log_dir
    await run.ask(into("/nowhere/at/all", (name, [0])))
    await run.ask(into("relative", (name, [0])))
    await run.ask(into(here, (name, [0])))
    await run.ask(into(here, (name, [7]), (run.name("none"), [0])))
    await run.ask(AlterReplicaLogDirsRequest(dirs=[]))
