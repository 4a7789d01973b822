"""Stories of failures: a dying leader, a zombie controller, and a lost record."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final

from anabranch.control.tour.scene import Scene
from anabranch.control.tour.step import Step, StoryFailed
from anabranch.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from anabranch.protocol.errors import ErrorCode

LEADER_TOPIC: Final = "tour-leader"
LOST_TOPIC: Final = "tour-lost"
KEPT_TOPIC: Final = "tour-kept"
UNKNOWN_EPOCH: Final = -1


async def play_leader_dies(scene: Scene) -> AsyncGenerator[Step, None]:
    """A leader dies."""
    others = [one for one in scene.node_ids if one != scene.controller()]
    await scene.topic(LEADER_TOPIC, assignments={0: [*others[:2], scene.controller()]})
    producer = await scene.producer()
    for number in range(20):
        await producer.send_and_wait(LEADER_TOPIC, b"%d" % number, b"a")
    await scene.refresh()
    before = scene.partition(LEADER_TOPIC)
    leader = before["leader"]
    yield scene.step(
        "Three copies",
        f"{LEADER_TOPIC} has one partition and three replicas. Node {leader} leads; the other two fetch from it. "
        "Twenty records were written with acks=all, so all three have them, and the high watermark is after the last.",
        f"topics/{LEADER_TOPIC}",
    )
    await scene.kill(leader)
    await scene.until(lambda: scene.partition(LEADER_TOPIC)["leader"] not in (leader, -1), "another leader")
    await scene.until(lambda: scene.partition(LEADER_TOPIC)["high_watermark"] >= 20, "the new leader's high watermark")
    after = scene.partition(LEADER_TOPIC)
    scene.claim("another node of the ISR leads", after["leader"] in before["isr"])
    scene.claim("its leader epoch is one higher", after["leader_epoch"] == before["leader_epoch"] + 1)
    scene.claim("none of the twenty records is lost", after["high_watermark"] >= 20)
    yield scene.step(
        "The leader is dead",
        f"Node {leader} was killed, and its ZooKeeper session has ended. The controller has elected node "
        f"{after['leader']}, which was in sync, in a new leader epoch: requests with the old epoch are refused from "
        "now on. In the dashboard, the dead replica's track is empty, and the ISR has two brokers.",
        f"topics/{LEADER_TOPIC}",
    )
    for number in range(20, 30):
        await producer.send_and_wait(LEADER_TOPIC, b"%d" % number, b"a")
    await scene.refresh()
    scene.claim("writes continue", scene.partition(LEADER_TOPIC)["high_watermark"] >= 30)
    yield scene.step(
        "Writes continue",
        "The same producer has written ten more. It got NOT_LEADER_OR_FOLLOWER or lost its connection, refreshed "
        "its metadata, and connected to the new leader. Sequence numbers prevent duplicates of resent batches.",
        "traffic",
    )
    await scene.start(leader)
    await scene.until(lambda: len(scene.partition(LEADER_TOPIC)["isr"]) == 3, "the old leader to be in sync again")
    row = scene.partition(LEADER_TOPIC)
    later = row["leader_epoch"] > after["leader_epoch"]  # the controller has moved leadership to the preferred replica
    scene.claim("it followed, and did not lead", row["leader"] != leader or later)
    scene.claim("all three logs end at the same offset", len({one["end"] for one in row["replicas"]}) == 1)
    yield scene.step(
        "The old leader returns",
        f"Node {leader} is registered under a new broker epoch, asked its leader where their logs diverge, truncated "
        "its log to that offset, fetched the rest, and the controller added it to the ISR.",
        f"topics/{LEADER_TOPIC}",
    )


async def play_zombie_controller(scene: Scene) -> AsyncGenerator[Step, None]:
    """A controller is frozen, and wakes up as a zombie."""
    old = scene.controller()
    epoch = await scene.controller_epoch(old)
    yield scene.step(
        "The active controller",
        f"Node {old} is the controller, in epoch {epoch}. It holds the znode /controller as long as its ZooKeeper "
        "session lasts, and every request to a broker carries its epoch.",
        "cluster",
    )
    await scene.freeze(old)
    yield scene.step(
        "The controller is frozen",
        f"Node {old} is frozen, like a process after SIGSTOP or a virtual machine during a migration. Its connections "
        "are open, and the cluster has not noticed it yet: ZooKeeper waits for its next heartbeat.",
        "cluster",
    )
    await scene.end_session(old)
    await scene.until(lambda: scene.controller() not in (0, old), "another controller")
    new = scene.controller()
    successor = await scene.controller_epoch(new)
    scene.claim("there is another controller", new != old)
    scene.claim("its epoch is higher", successor > epoch)
    scene.claim("the frozen node still believes that it is the controller", scene.has_stopped_as_controller(old))
    yield scene.step(
        "Two controllers",
        f"The session is over, and node {new} has taken the seat in epoch {successor}. Node {old} does not "
        "know: it "
        "stopped while it was the controller, and when it wakes up it goes on in the middle of a thought.",
        "cluster",
    )
    code = await _order(scene, new, controller=old, epoch=epoch)
    scene.claim(
        f"a broker answers a request of epoch {epoch} with STALE_CONTROLLER_EPOCH",
        code == ErrorCode.STALE_CONTROLLER_EPOCH,
    )
    await scene.thaw(old)
    await scene.until_resigned(old, epoch)
    await scene.until(lambda: scene.controller() != 0, "a controller")
    scene.claim("exactly one node is the controller", scene.controllers() == [scene.controller()])
    await scene.is_complete()
    yield scene.step(
        "The old controller resigns",
        f"Node {old} woke up. What it said in epoch {epoch} was refused by every broker that has heard of the next "
        "one, and "
        "what it wanted to write to ZooKeeper was bound to a session that is over. It learnt that its session had "
        "expired, resigned, and joined again as a broker like any other.",
        "events",
    )


async def _order(scene: Scene, broker: int, *, controller: int, epoch: int) -> int:
    """Send a broker a request as a controller of this epoch; returns the error code."""
    request = LeaderAndIsrRequest(
        controller_id=controller,
        controller_epoch=epoch,
        broker_epoch=scene.broker_epoch(broker),
        topic_states=[],
        live_leaders=[],
    )
    response: LeaderAndIsrResponse = await scene.call(broker, request, client_id=f"controller-{controller}")
    return response.error_code


async def play_lost_record(scene: Scene) -> AsyncGenerator[Step, None]:
    """The lost record of KIP-903: lost without the broker epoch's fence, kept with it."""
    if len(scene.node_ids) < 3:
        raise StoryFailed("this story needs three nodes")
    for fenced in (False, True):
        async for step in _late_request(scene, fenced=fenced):
            yield step


async def _fall_behind(scene: Scene, topic: str) -> tuple[int, int, int]:
    """Make a follower lack five acknowledged records; returns leader, follower, and the follower's old broker epoch."""
    leader, follower = [one for one in scene.node_ids if one != scene.controller()][:2]
    await scene.topic(topic, assignments={0: [leader, follower]})
    producer = await scene.producer()
    for number in range(10):
        await producer.send_and_wait(topic, b"%d" % number)
    await scene.refresh()
    former_epoch = scene.broker_epoch(follower)
    await scene.kill(follower)
    await scene.until(lambda: scene.partition(topic)["isr"] == [leader], "the follower to leave the ISR")
    for number in range(10, 15):
        await producer.send_and_wait(topic, b"%d" % number)
    return leader, follower, former_epoch


async def _late_request(scene: Scene, *, fenced: bool) -> AsyncGenerator[Step, None]:
    """A restarted follower, and a late request with its old broker epoch."""
    topic = KEPT_TOPIC if fenced else LOST_TOPIC
    leader, follower, former_epoch = await _fall_behind(scene, topic)
    with_or_without = "with the fence" if fenced else "without the fence"
    yield scene.step(
        f"Fifteen records, {with_or_without}",
        f"Nodes {leader} and {follower} hold {topic}. Ten records are on both. Then node {follower} was "
        "killed, left the "
        f"ISR, and five more were acknowledged by node {leader} alone, which is all that acks=all asks for now.",
        f"topics/{topic}",
    )
    name = await scene.rule(
        name="no-catching-up", api=["Fetch"], brokers=[leader], topic=[topic], between_brokers=True, hold=True
    )
    await scene.start(follower)
    code, isr = await _propose(scene, topic, leader, follower, former_epoch if fenced else UNKNOWN_EPOCH)
    if fenced:
        scene.claim("the controller refuses it with INELIGIBLE_REPLICA", code == ErrorCode.INELIGIBLE_REPLICA)
        scene.claim("the ISR stays as it is", isr == [leader])
    else:
        scene.claim("the controller takes the follower into the ISR", isr == [leader, follower])
    await scene.refresh()
    now = scene.broker_epoch(follower)
    about = (
        f"This time it names the follower's broker epoch, {former_epoch}, as since KIP-903. Node {follower} is "
        f"registered under {now}: the old epoch proves nothing, so the controller refuses."
        if fenced
        else "Before KIP-903 it named the follower by its id only, and this one does as well. Its id is alive, so the "
        "controller agrees: a replica that lacks five acknowledged records is in sync now."
    )
    yield scene.step(
        "A late request",
        f"Node {follower} is back, and has not fetched anything yet (a rule holds its fetches). Now a request "
        "arrives that node "
        f"{leader} had sent before: take node {follower} into the ISR. {about}",
        f"topics/{topic}",
    )
    await scene.kill(leader)
    await scene.drop_rule(name)
    await _claim_leader(scene, topic, follower, fenced=fenced)
    yield scene.step(
        "The leader is killed",
        f"Node {leader} was killed. "
        + (
            f"The partition waits for it: node {follower} is not in sync, and cannot lead. That costs availability "
            "for a while, but no record."
            if fenced
            else f"Node {follower} is in the ISR, so it becomes the leader by a clean election."
        ),
        f"topics/{topic}",
    )
    await scene.start(leader)
    await scene.is_complete()
    await scene.until(lambda: scene.is_settled(topic), "both replicas to be in sync")
    outcome = _claim_records(scene, topic, fenced=fenced)
    yield scene.step(f"What is left, {with_or_without}", f"Node {leader} is back: {outcome}", f"topics/{topic}")


async def _claim_leader(scene: Scene, topic: str, follower: int, *, fenced: bool) -> None:
    """Check that the follower leads without the fence, and that no replica leads with it."""
    if fenced:
        await scene.until(lambda: scene.partition(topic)["leader"] == -1, "the partition to have no leader")
        scene.claim("no leader: no live replica has all records", True)
    else:
        await scene.until(lambda: scene.partition(topic)["leader"] == follower, "the follower to lead")
        await scene.until(lambda: scene.partition(topic)["high_watermark"] >= 0, "its high watermark")
        scene.claim("the follower leads, with ten records", scene.partition(topic)["high_watermark"] == 10)


def _claim_records(scene: Scene, topic: str, *, fenced: bool) -> str:
    """Check which records are left once both replicas are in sync; return it as a sentence."""
    end = scene.partition(topic)["high_watermark"]
    if fenced:
        scene.claim("all fifteen records are there", end == 15)
        return "all fifteen records exist: the fence prevented the loss."
    scene.claim("five acknowledged records are lost", end == 10)
    return (
        "it had to cut off what its new leader does not have. Five records that were acknowledged are gone on "
        "every replica, and no client was told. Now the same with the fence."
    )


async def _propose(scene: Scene, topic: str, leader: int, follower: int, follower_epoch: int) -> tuple[int, list[int]]:
    """Propose the follower for the ISR, as the leader does. Returns the error code and the resulting ISR."""
    partition = await scene.described(topic)
    epochs = [(leader, scene.broker_epoch(leader)), (follower, follower_epoch)]
    row = PartitionData(
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=one, broker_epoch=epoch) for one, epoch in epochs],
        partition_epoch=partition.partition_epoch,
    )
    request = AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=scene.broker_epoch(leader),
        topics=[TopicData(topic_id=partition.topic_id, partitions=[row])],
    )
    response: AlterPartitionResponse = await scene.call(scene.controller(), request, client_id=f"broker-{leader}")
    answer: Any = response.topics[0].partitions[0]
    return answer.error_code, answer.isr or partition.isr
