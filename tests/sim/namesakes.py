"""A topic is replaced by another one of its name, and responses of ZooKeeper are lost meanwhile.

One client deletes the topic while another one tries to create it, so that the next one exists as soon as the name is
free: before a node that had no response has asked again. Nobody writes to these topics. C20 judges what ZooKeeper saw:
a request deletes one topic at most, and nothing deletes a topic without a request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from anabranch import Admin, NewTopic
from anabranch.controller.zk import paths
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.sim.clients import CLIENT_FAILURES, Application
from tests.sim.loop import outside
from tests.sim.zookeeper import Change, SimSession

if TYPE_CHECKING:
    from tests.sim.chores import Caretaker
    from tests.sim.schedule import Schedule

NAMESAKE: Final = "namesake"
CHORE: Final = "replace a topic by another of its name"
FAULT: Final = "a response of zookeeper is lost"
WITHIN_S: Final = 10.0
LOST_WITHIN_S: Final = 3.0
DELETIONS: Final = (f"{paths.DELETE_TOPICS}/", f"{paths.TOPICS}/{NAMESAKE}")
"""The beginning of the paths of a deletion: of the request for it, and of the topic."""


class Rival(Application):
    """Creates the topic as soon as its name is free."""

    def __init__(self, caretaker: Caretaker, earlier_id: bytes) -> None:
        super().__init__(caretaker.cluster, f"rival-{caretaker.cluster.fired[f'chore: {CHORE}']}")
        self._earlier_id = earlier_id
        self._partitions = self.rng.choice((1, 2))

    async def run(self) -> None:
        while not self.stopping and topic_id(self) in (None, self._earlier_id):
            try:
                async with Admin(self.cluster.bootstrap, request_timeout_ms=1000, rng=self.chance("admin")) as admin:
                    while topic_id(self) in (None, self._earlier_id) and not self.stopping:
                        await create(admin, self._partitions)
                        await asyncio.sleep(0.02)
            except CLIENT_FAILURES as error:
                self.tell(f"cannot create {NAMESAKE}: {error}")
                await asyncio.sleep(0.1)


def topic_id(application: Application) -> bytes | None:
    """The topic's id by ZooKeeper's word."""
    body = application.cluster.topic(NAMESAKE)
    return None if body is None else body.topic_id


async def create(admin: Admin, partitions: int) -> None:
    """Create the topic unless there is one."""
    try:
        await admin.create_topics([NewTopic(name=NAMESAKE, partitions=partitions, replication_factor=2)])
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


async def delete(admin: Admin) -> None:
    """Delete the topic if there is one."""
    try:
        await admin.delete_topics([NAMESAKE])
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise


async def replace(caretaker: Caretaker) -> bool:
    """Whether another topic has the name."""
    caretaker.history.unread.add(NAMESAKE)
    if not await caretaker.ask(f"make {NAMESAKE}", lambda admin: create(admin, 1)):
        return False
    earlier_id = topic_id(caretaker)
    if earlier_id is None:
        return False
    rival = Rival(caretaker, earlier_id)
    rival.start()
    await asyncio.sleep(caretaker.rng.random() * 0.1)
    await caretaker.ask(f"delete {NAMESAKE}", delete)
    deadline = caretaker.cluster.now() + WITHIN_S
    while topic_id(caretaker) in (None, earlier_id) and caretaker.cluster.now() < deadline:
        await asyncio.sleep(0.05)
    rival.stopping = True
    return topic_id(caretaker) not in (None, earlier_id)


async def response_is_lost(schedule: Schedule) -> bool:
    """That of a write to any znode, or to one of a topic that is deleted."""
    return await lose_responses(schedule, schedule.rng.choice(("", "", *DELETIONS)))


async def lose_responses(schedule: Schedule, below: str) -> bool:
    """The connection breaks when a write has been carried out, and is there again soon, in the same session."""
    cluster, rng = schedule.cluster, schedule.rng
    before = cluster.zookeeper.fired["answer lost"]
    away_s, left = rng.choice((0.02, 0.1, 0.4, 1.0)) * (0.5 + rng.random()), [rng.choice((1, 1, 2))]

    def seen(change: Change) -> None:
        session = cluster.zookeeper._sessions.get(change.session_id)
        if not left[0] or not isinstance(session, SimSession) or not change.path.startswith(below):
            return
        left[0] -= 1
        cluster.tell(f"no response for {change.path}, {change.kind}, and no connection for {away_s:.3f} s")
        cluster.loop.call_soon(session.lose_connection, context=outside())
        cluster.loop.call_later(away_s, session.reconnect, context=outside())

    cluster.zookeeper.on_change.append(seen)
    await asyncio.sleep(LOST_WITHIN_S)
    cluster.zookeeper.on_change.remove(seen)
    await asyncio.sleep(away_s)
    return cluster.zookeeper.fired["answer lost"] > before
