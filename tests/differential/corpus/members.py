"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.heartbeat import HeartbeatRequest
from anabranch.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from anabranch.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from anabranch.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.differential.case import Run, case

MEMBER_ID_REQUIRED = 79


def subscription(topics: Sequence[str]) -> bytes:
    """The consumer protocol's metadata, version 0."""
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def join(
    group: str,
    member: str = "",
    *,
    instance: str | None = None,
    protocol_type: str = "consumer",
    protocols: Sequence[str] = ("range",),
    session_ms: int = 30000,
    rebalance_ms: int = 10000,
    topics: Sequence[str] = ("t",),
) -> JoinGroupRequest:
    """A request to join."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=subscription(topics)) for name in protocols],
    )


def sync(
    group: str,
    generation: int,
    member: str,
    *assignments: tuple[str, bytes],
    instance: str | None = None,
    protocol_type: str | None = "consumer",
    protocol_name: str | None = "range",
) -> SyncGroupRequest:
    """A request for the assignment; the leader brings it."""
    rows = [SyncGroupRequestAssignment(member_id=who, assignment=what) for who, what in assignments]
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=rows,
    )


@dataclass(slots=True)
class Member:
    """A member that the cases need but do not compare."""

    group: str
    id: str
    generation: int

    @classmethod
    async def joined(
        cls,
        run: Run,
        group: str,
        *,
        instance: str | None = None,
        protocol_type: str = "consumer",
        topics: Sequence[str] = ("t",),
    ) -> Member:
        """The only member of a group that is stable."""
        await coordinated(run, group)
        asked = join(group, instance=instance, protocol_type=protocol_type, topics=topics)
        answer = await run.prepare(asked, version=9)
        if answer.error_code == MEMBER_ID_REQUIRED:
            asked.member_id = answer.member_id
            answer = await run.prepare(asked, version=9)
        assert answer.error_code == 0, answer
        one = cls(group, answer.member_id, answer.generation_id)
        given = sync(
            group,
            one.generation,
            one.id,
            (one.id, b"mine"),
            instance=instance,
            protocol_type=protocol_type,
            protocol_name="range",
        )
        answer = await run.prepare(given, version=5)
        assert answer.error_code == 0, answer
        return one


async def coordinated(run: Run, group: str) -> None:
    """Wait until the group has a coordinator."""
    await run.settled(
        FindCoordinatorRequest(coordinator_keys=[group]), lambda answer: answer.coordinators[0].error_code == 0
    )


async def enter(run: Run, request: JoinGroupRequest, *, over: str = "") -> Any:
    """Join, in the two steps that newer versions want; every answer is compared."""
    answer = await run.ask(request, over=over)
    if answer.error_code == MEMBER_ID_REQUIRED:
        request.member_id = answer.member_id
        answer = await run.ask(request, over=over)
    return answer


@case("JoinGroup")
async def alone(run: Run) -> None:
    await coordinated(run, group := run.name("g"))
    first = await enter(run, join(group))
    await run.ask(sync(group, first.generation_id, first.member_id, (first.member_id, b"all")))
    await run.ask(join(group, first.member_id))  # the leader joins again: a new generation
    await run.ask(HeartbeatRequest(group_id=group, generation_id=first.generation_id, member_id=first.member_id))


@case("JoinGroup")
async def refused(run: Run) -> None:
    await coordinated(run, group := run.name("g"))
    await run.ask(join(""))
    await run.ask(join(group, session_ms=1))
    await run.ask(join(group, session_ms=10_000_000))
    await run.ask(join(group, "stranger"))
    await run.ask(join(group, protocols=()))
    await run.ask(join(group, protocol_type=""))
    await run.ask(join(group, protocols=("range",), topics=()))


@case("JoinGroup")
async def other_protocols(run: Run) -> None:
    await coordinated(run, group := run.name("g"))
    first = await enter(run, join(group, protocols=("range", "roundrobin")))
    await run.prepare(sync(group, first.generation_id, first.member_id, (first.member_id, b"all")), version=0)
    await run.ask(join(group, protocols=("sticky",)), over="second")
    await run.ask(join(group, protocol_type="other"), over="second")


@case("JoinGroup")
async def two_members(run: Run) -> None:
    await coordinated(run, group := run.name("g"))
    first = await enter(run, join(group, protocols=("range", "roundrobin")))
    await run.prepare(sync(group, first.generation_id, first.member_id, (first.member_id, b"all")), version=0)
    second = join(group, protocols=("roundrobin",))
    if run.version >= 4:
        second.member_id = (await run.ask(second, over="second")).member_id
    waiting = asyncio.ensure_future(run.prepare(second, over="second"))
    beat = HeartbeatRequest(group_id=group, generation_id=first.generation_id, member_id=first.member_id)
    await run.until(beat, lambda answer: answer.error_code != 0)
    again = join(group, first.member_id, protocols=("range", "roundrobin"))
    leader = await run.ask(again)
    follower = await waiting
    run.record(second, None, follower)
    given = (leader.member_id, b"one"), (follower.member_id, b"two")
    waiting = asyncio.ensure_future(
        run.prepare(sync(group, follower.generation_id, follower.member_id, protocol_name="roundrobin"), over="second")
    )
    await run.ask(sync(group, leader.generation_id, leader.member_id, *given, protocol_name="roundrobin"))
    run.record(sync(group, 0, ""), None, await waiting)
    await run.ask(HeartbeatRequest(group_id=group, generation_id=leader.generation_id, member_id=leader.member_id))


@case("JoinGroup", "5-9")
async def static_members(run: Run) -> None:
    await coordinated(run, group := run.name("g"))
    first = await run.ask(join(group, instance="one"))
    given = sync(group, first.generation_id, first.member_id, (first.member_id, b"all"), instance="one")
    await run.prepare(given, version=3)
    again = await run.ask(join(group, instance="one"))  # comes back without its id: gets a new one, same generation
    await run.ask(join(group, first.member_id, instance="one"))  # the old incarnation
    await run.ask(join(group, again.member_id, instance="one"))
    await run.ask(join(group, again.member_id, instance="two"))
    await run.ask(join(group, "stranger", instance="one"))
    beat = HeartbeatRequest(group_id=group, generation_id=1, member_id=first.member_id, group_instance_id="one")
    await run.ask(beat)


@case("SyncGroup")
async def assignments(run: Run) -> None:
    await coordinated(run, group := run.name("g"))
    asked = join(group)
    first = await run.prepare(asked, version=9)
    asked.member_id = first.member_id
    first = await run.prepare(asked, version=9)
    good = sync(group, first.generation_id, first.member_id, (first.member_id, b"all"))
    await run.ask(sync(group, first.generation_id + 1, first.member_id))
    await run.ask(sync(group, first.generation_id, "stranger"))
    await run.ask(sync(run.name("none"), 1, first.member_id))
    await run.ask(sync("", 1, first.member_id))
    if run.version >= 5:
        await run.ask(sync(group, first.generation_id, first.member_id, protocol_type="x", protocol_name="range"))
        await run.ask(sync(group, first.generation_id, first.member_id, protocol_type="consumer", protocol_name="x"))
        await run.ask(sync(group, first.generation_id, first.member_id, protocol_type=None, protocol_name=None))
    await run.ask(good)
    await run.ask(sync(group, first.generation_id, first.member_id))
    if run.version >= 3:
        good.group_instance_id = "nobody"
        await run.ask(good)


@case("Heartbeat")
async def beats(run: Run) -> None:
    member = await Member.joined(run, group := run.name("g"))

    def beat(generation: int, who: str, in_group: str = group) -> HeartbeatRequest:
        return HeartbeatRequest(group_id=in_group, generation_id=generation, member_id=who)

    await run.ask(beat(member.generation, member.id))
    await run.ask(beat(member.generation + 1, member.id))
    await run.ask(beat(member.generation - 1, member.id))
    await run.ask(beat(-1, member.id))
    await run.ask(beat(member.generation, "stranger"))
    await run.ask(beat(member.generation, ""))
    await run.ask(beat(1, member.id, run.name("none")))
    await run.ask(beat(1, member.id, ""))


@case("Heartbeat", "3-4")
async def static_beats(run: Run) -> None:
    member = await Member.joined(run, group := run.name("g"), instance="one")
    for who, instance in ((member.id, "one"), (member.id, "two"), ("stranger", "one"), (member.id, None)):
        await run.ask(
            HeartbeatRequest(group_id=group, generation_id=member.generation, member_id=who, group_instance_id=instance)
        )


@case("Heartbeat")
async def beats_while_joining(run: Run) -> None:
    await coordinated(run, group := run.name("g"))
    asked = join(group)
    asked.member_id = (await run.prepare(asked, version=9)).member_id
    await run.ask(HeartbeatRequest(group_id=group, generation_id=-1, member_id=asked.member_id))
    first = await run.prepare(asked, version=9)
    await run.ask(HeartbeatRequest(group_id=group, generation_id=first.generation_id, member_id=first.member_id))


def leave(group: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    """In the form of every version."""
    rows = [MemberIdentity(member_id=who, group_instance_id=instance) for who, instance in members]
    return LeaveGroupRequest(group_id=group, member_id=members[0][0] if members else "", members=rows)


@case("LeaveGroup")
async def left(run: Run) -> None:
    member = await Member.joined(run, group := run.name("g"))
    await run.ask(leave(group, ("stranger", None)))
    await run.ask(leave(run.name("none"), (member.id, None)))
    await run.ask(leave("", (member.id, None)))
    await run.ask(leave(group, (member.id, None)))
    await run.ask(leave(group, (member.id, None)))


@case("LeaveGroup", "3-5")
async def several_left(run: Run) -> None:
    member = await Member.joined(run, group := run.name("g"), instance="one")
    await run.ask(leave(group))
    await run.ask(leave(group, ("stranger", "one"), ("stranger", None), ("", "two")))
    await run.ask(leave(group, (member.id, "two")))
    await run.ask(leave(group, ("", "one"), ("", "one")))
    await run.ask(leave(group, ("", "one")))
