"""Each event is reported once and in order, to later requests and to listeners."""

from __future__ import annotations

import asyncio

from anabranch.control.events import KEPT, Events
from tests.anabranch.control.conftest import controlled, with_topic


async def test_events_after_a_number_are_returned() -> None:
    events = Events()
    for number in range(KEPT + 5):
        events.publish("tick", count=number)
    assert events.newest == KEPT + 5
    assert [one.number for one in events.after(KEPT + 2)] == [KEPT + 3, KEPT + 4, KEPT + 5]
    assert events.after(0)[0].number == 6, "the oldest are forgotten"
    row = events.after(events.newest - 1)[0].row()
    assert (row["kind"], row["count"], row["number"]) == ("tick", KEPT + 4, KEPT + 5)


async def test_waiters_are_woken_by_the_next_event() -> None:
    events, heard = Events(), list[int]()

    async def listen(number: int) -> None:
        while True:
            await events.wait_after(number)
            for one in events.after(number):
                number = one.number
                heard.append(number)

    events.publish("before")
    listeners = [asyncio.create_task(listen(0)), asyncio.create_task(listen(1))]
    await asyncio.sleep(0)
    assert heard == [1]
    listeners[1].cancel()
    await asyncio.wait([listeners[1]])
    events.publish("while it listens")
    events.publish("at once")
    for _ in range(5):
        await asyncio.sleep(0)
    assert heard == [1, 2, 3]
    listeners[0].cancel()
    await asyncio.wait(listeners)


async def test_leader_and_isr_changes_are_published_once() -> None:
    async with controlled() as on, asyncio.timeout(60):
        await with_topic(on)
        kinds = [(one.kind, one.detail.get("partition")) for one in on.events.after(0)]
        assert kinds.count(("leader", 0)) == kinds.count(("leader", 1)) == 1
        assert sum(kind == "topic created" for kind, _ in kinds) == 1
        (leader,) = (one for one in on.events.after(0) if (one.kind, one.detail.get("partition")) == ("leader", 0))
        before = on.events.newest
        await on.actions.kill(leader.detail["leader"])
        seen, led = before, None
        while led is None:
            await on.events.wait_after(seen)
            found = [one for one in on.events.after(seen) if (one.kind, one.detail.get("partition")) == ("leader", 0)]
            seen, led = on.events.newest, next(iter(found), None)
        assert led.detail["leader"] not in (-1, leader.detail["leader"])
        assert led.detail["leader_epoch"] == 1
        assert "node killed" in {one.kind for one in on.events.after(before)}


async def test_leaders_of_recreated_topic_are_published_again() -> None:
    async with controlled(1) as on, asyncio.timeout(60):
        for _ in range(2):
            await with_topic(on)
            newest = on.events.newest
            async with on.admin() as admin:
                await admin.delete_topics(["t"])
            while not any(one.kind == "topic deleted" for one in on.events.after(newest)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        told = [one.detail["partition"] for one in on.events.after(0) if one.kind == "leader"]
        assert told.count(0) == told.count(1) == 2
