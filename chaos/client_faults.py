"""Faults of the clients of a chaos run: they crash, freeze, and leave."""

from __future__ import annotations

from typing import Final

from anabranch.chaos.fault_table import FaultTable
from anabranch.chaos.scene import Scene

FAULTS: Final = FaultTable()


@FAULTS.add("crash a consumer")
async def crash_consumer(scene: Scene) -> str | None:
    """Crash a member of the group without leaving; it rejoins as a new member."""
    reader = scene.rng.choice(scene.readers)
    return f"{reader.identity}" if await reader.crash() else None


@FAULTS.add("replace a consumer")
async def replace_consumer(scene: Scene) -> str | None:
    """Make a member leave the group in order, and rejoin as a new member."""
    reader = scene.rng.choice(scene.readers)
    reader.replace()
    return f"{reader.identity}"


@FAULTS.add("kill a stock member")
async def kill_member(scene: Scene) -> str | None:
    """SIGKILL a member of a group of other projects' consumers; it is restarted."""
    return scene.rng.choice(scene.groups).processes.kill(scene.rng) if scene.groups else None


@FAULTS.add("freeze a stock member")
async def freeze_member(scene: Scene) -> str | None:
    """SIGSTOP such a member, for shorter or longer than its session timeout, and SIGCONT."""
    if not scene.groups:
        return None
    return await scene.rng.choice(scene.groups).processes.freeze(scene.rng, scene.pause())


@FAULTS.add("crash a sharer")
async def crash_sharer(scene: Scene) -> str | None:
    """Crash a member of the share group with acquired records; it rejoins as a new member."""
    return None if scene.shared is None else scene.shared.crash(scene.rng)


@FAULTS.add("crash a copier")
async def crash_copier(scene: Scene) -> str | None:
    """Crash a copier, perhaps in a transaction; it rejoins as a new member with its transactional id."""
    return None if scene.copied is None else await scene.copied.crash(scene.rng)


@FAULTS.add("kill a Streams instance")
async def kill_instance(scene: Scene) -> str | None:
    """SIGKILL an instance of the Streams application, perhaps in a transaction; it is restarted with its state."""
    return None if scene.numbered is None else scene.numbered.processes.kill(scene.rng)


@FAULTS.add("freeze a Streams instance")
async def freeze_instance(scene: Scene) -> str | None:
    """SIGSTOP such an instance, for shorter or longer than its session timeout, and SIGCONT."""
    return None if scene.numbered is None else await scene.numbered.processes.freeze(scene.rng, scene.pause())
