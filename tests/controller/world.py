"""A world without I/O for `machine.step`: znodes in dicts, immediate brokers, tenures that end at any effect.

It keeps the history of every partition's state and of all that brokers were shown, and asserts with each write what
must hold whatever crashes: one generation per leader epoch (R2, I1), generations and their beginnings only grow (R1), a
write of a deposed controller changes nothing, and no image shows an epoch of a generation it does not know (R12).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.broker.metadata.metadata_cache import ClusterImage, apply_update
from anabranch.controller import effects, events, machine
from anabranch.controller.features import RESHARD
from anabranch.controller.model import Broker, Endpoint, Features, LeaderAndIsr, Partition, Topic, TopicPartition
from anabranch.controller.settings import ControllerSettings
from anabranch.controller.state import ClusterState
from anabranch.controller.topic_admin import new_topic
from anabranch.protocol.apis import leader_and_isr as lai
from anabranch.protocol.apis.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from anabranch.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from anabranch.protocol.apis.elect_leaders import ElectLeadersRequest, TopicPartitions
from anabranch.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from anabranch.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from anabranch.protocol.apis.stop_replica import StopReplicaRequest, StopReplicaResponse
from anabranch.protocol.apis.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from anabranch.protocol.errors import ErrorCode


class Crash(BaseException):
    """The controller process dies here."""


class Deposed(Exception):
    """A write of a term that is over."""


def broker(broker_id: int, epoch: int) -> Broker:
    return Broker(broker_id, epoch, (Endpoint("PLAINTEXT", f"host{broker_id}", 9092),), None, ((RESHARD, 1, 1),))


@dataclass
class World:
    """Everything that survives a controller."""

    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    states: dict[TopicPartition, Partition] = field(default_factory=dict)
    deletions: set[str] = field(default_factory=set)
    features: Features = field(default_factory=lambda: Features({RESHARD: 1}, 0))
    controller_epoch: int = 0
    zxid: int = 100
    history: list[tuple[TopicPartition, LeaderAndIsr]] = field(default_factory=list)
    held: dict[tuple[int, TopicPartition], lai.LeaderAndIsrPartitionState] = field(default_factory=dict)
    images: dict[int, ClusterImage] = field(default_factory=dict)
    offsets: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    """Brokers that get requests and do not answer."""
    sent: list[tuple[int, Any]] = field(default_factory=list)
    announced: list[effects.PublishEvent] = field(default_factory=list)

    def add_brokers(self, *ids: int) -> None:
        for one in ids:
            self.zxid += 1
            self.brokers[one] = broker(one, self.zxid)

    def add_topic(self, name: str, assignment: dict[int, tuple[int, ...]], **config: str) -> None:
        body = new_topic(name.encode().ljust(16, b"."), assignment)
        self.topics[name] = Topic(name, body, 0, {key.replace("_", "."): value for key, value in config.items()})

    def snapshot(self, name: str) -> events.TopicSnapshot:
        topic = self.topics[name]
        known = {
            index: self.states[TopicPartition(name, index)]
            for index in topic.body.assignment
            if TopicPartition(name, index) in self.states
        }
        return events.TopicSnapshot(topic, known, b"fresh id".ljust(16, b"."))

    def state(self, name: str, index: int) -> LeaderAndIsr:
        return self.states[TopicPartition(name, index)].state

    def states_of(self, name: str) -> dict[int, LeaderAndIsr]:
        return {one.partition: known.state for one, known in sorted(self.states.items()) if one.topic == name}

    # what a term does to the world

    def write_state(self, epoch: int, write: effects.PartitionWrite) -> bool:
        self._fence(epoch)
        known = self.states.get(write.partition)
        if (known.epoch if known else None) != write.expected_epoch:
            return False
        self._put_state(write)
        return True

    def _put_state(self, write: effects.PartitionWrite) -> None:
        known = self.states.get(write.partition)
        self.note(write.partition, write.state)
        if known is not None:
            self._keep_what_is_committed(write.partition, known.state, write.state)
        self.states[write.partition] = Partition(write.state, 0 if known is None else known.epoch + 1)

    def _keep_what_is_committed(self, partition: TopicPartition, before: LeaderAndIsr, after: LeaderAndIsr) -> None:
        unclean = after.leader_recovery_state == 1
        assert after.leader in (-1, *before.isr) or unclean, f"{partition}: {after.leader} leads, of {before.isr}"
        assert set(after.isr) & set(before.isr) or unclean, f"{partition}: {before.isr} -> {after.isr}"
        if self.brokers.keys() & set(before.isr):
            assert self.brokers.keys() & set(after.isr), f"{partition}: nobody alive is left in sync"
        if after.leader_epoch == before.leader_epoch:
            assert after.leader == before.leader, f"{partition}: one epoch, two leaders"

    def note(self, partition: TopicPartition, state: LeaderAndIsr) -> None:
        for earlier, before in self.history:
            if earlier != partition:
                continue
            if before.leader_epoch == state.leader_epoch:
                assert before.generation == state.generation, f"{partition}: one epoch, two generations (R2)"
                assert before.sealed == state.sealed, f"{partition}: sealed or opened without an epoch of its own (R6)"
            assert before.leader_epoch <= state.leader_epoch, f"{partition}: the leader epoch went back"
            assert before.generation <= state.generation, f"{partition}: the generation went back (R1)"
            assert state.gen_start[: len(before.gen_start)] == before.gen_start, f"{partition}: gen_start was rewritten"
        starts = state.gen_start
        assert list(starts) == sorted(set(starts)) and starts[-1][0] == state.generation
        assert all(one[0] < two[0] and one[1] < two[1] for one, two in itertools.pairwise(starts))
        self.history.append((partition, state))

    def write_topic(self, epoch: int, effect: effects.WriteTopic) -> bool:
        self._fence(epoch)
        known = self.topics.get(effect.name)
        if known is None or known.version != effect.expected_version:
            return False
        if any(self.states[one.partition].epoch != one.expected_epoch for one in effect.states):
            return False
        assert effect.body.generation >= known.body.generation, "the topic's generation went back (R1)"
        assert effect.body.history[: len(known.body.history)] == known.body.history or not known.ordered
        self.topics[effect.name] = replace(known, body=effect.body, version=known.version + 1)
        for write in effect.states:
            self._put_state(write)
            assert set(write.state.isr) <= set(effect.body.assignment[write.partition.partition]), "a stray in sync"
        for index in effect.removed:
            del self.states[TopicPartition(effect.name, index)]
        return True

    def remove_topic(self, epoch: int, name: str) -> None:
        self._fence(epoch)
        self.topics.pop(name)
        self.deletions.discard(name)
        self.states = {one: state for one, state in self.states.items() if one.topic != name}

    def deliver(self, effect: effects.SendToBroker) -> events.ResponseReceived | None:
        receiver = self.brokers.get(effect.broker_id)
        if receiver is None or receiver.epoch != effect.broker_epoch:
            return None
        self.sent.append((effect.broker_id, effect.request))
        if effect.broker_id in self.silent:
            return None
        response = self._answer(effect.broker_id, effect.request)
        return events.ResponseReceived(effect.broker_id, effect.broker_epoch, effect.request, response)

    def _answer(self, broker_id: int, request: Any) -> Any:
        match request:
            case lai.LeaderAndIsrRequest():
                return self._lead(broker_id, request)
            case UpdateMetadataRequest():
                image = apply_update(self.images.get(broker_id, ClusterImage()), request)
                self.images[broker_id] = image
                self._check_image(image)
                return UpdateMetadataResponse(error_code=0)
            case StopReplicaRequest():
                for topic in request.topic_states:
                    for row in topic.partition_states:
                        if row.delete_partition:
                            self.held.pop((broker_id, TopicPartition(topic.topic_name, row.partition_index)), None)
                return StopReplicaResponse(error_code=0, partition_errors=[])
            case ListOffsetsRequest():
                row = request.topics[0].partitions[0]
                name, index = request.topics[0].name, row.partition_index
                start, end = self.offsets.get(TopicPartition(name, index), (0, 0))
                told = ListOffsetsPartitionResponse(
                    partition_index=index, error_code=0, offset=start if row.timestamp == -2 else end
                )
                return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=name, partitions=[told])])
        raise AssertionError(request)

    def _lead(self, broker_id: int, request: lai.LeaderAndIsrRequest) -> lai.LeaderAndIsrResponse:
        topics = []
        for topic in request.topic_states:
            rows = []
            for row in topic.partition_states:
                key = (broker_id, TopicPartition(topic.topic_name, row.partition_index))
                known = self.held.get(key)
                code = ErrorCode.NONE
                if known is not None and known.leader_epoch >= row.leader_epoch:
                    code = ErrorCode.STALE_CONTROLLER_EPOCH
                    if known.leader_epoch == row.leader_epoch:
                        assert known.generation == row.generation, f"{key}: one epoch, two generations (R2)"
                else:
                    self.held[key] = row
                rows.append(lai.LeaderAndIsrPartitionError(partition_index=row.partition_index, error_code=code))
            topics.append(lai.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=rows))
        return lai.LeaderAndIsrResponse(error_code=0, topics=topics)

    def _check_image(self, image: ClusterImage) -> None:
        for topic in image.topics.values():
            for partition in topic.partitions.values():
                for generation, first_epoch in partition.gen_start:
                    assert generation <= topic.generation or partition.leader_epoch < first_epoch, "R12"

    def _fence(self, epoch: int) -> None:
        if epoch != self.controller_epoch:
            raise Deposed


class Term:
    """One controller's time in this world; `crash_after` effects it dies."""

    def __init__(self, world: World, *, crash_after: int | None = None, **settings: Any) -> None:
        self.world = world
        world.controller_epoch += 1
        self.epoch = world.controller_epoch
        self.state = ClusterState(ControllerSettings(node_id=9, **settings), self.epoch)
        self.acted = 0
        self.crash_after = crash_after
        self.thorough = True
        """Whether everything is checked after each event, and not only what it has changed."""
        self.replies: dict[int, Any] = {}
        self.timers: dict[str, int] = {}
        self._arrived: deque[events.Event] = deque()
        self._token = 0

    def take_over(self) -> Term:
        world = self.world
        snapshots = tuple(world.snapshot(name) for name in sorted(world.topics))
        deletions = frozenset(world.deletions)
        self.happen(events.ControllerFailover(dict(world.brokers), snapshots, deletions, world.features))
        return self

    def happen(self, *happened: events.Event) -> None:
        """Decide about these events, and about all answers that brokers give, until nothing is left to do."""
        self._arrived.extend(happened)
        while self._arrived:
            outcomes, posted = deque([self._arrived.popleft()]), deque()  # in the runner's order
            while outcomes or posted:
                for effect in machine.step(self.state, outcomes.popleft() if outcomes else posted.popleft()):
                    outcome = self._act(effect)
                    if outcome is not None:
                        (posted if isinstance(effect, effects.Post) else outcomes).append(outcome)
            self.state.check()
            if self.thorough:
                self.state.check_all()

    def resize(self, name: str, count: int, *, allow_shrink: bool = True, timeout_ms: int = 1000) -> Any:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None, allow_shrink=allow_shrink)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=False)
        self._token += 1
        self.happen(events.PartitionsRequested(self._token, request))
        reply = self.replies.get(self._token)
        return None if reply is None else reply.results[0]

    def reassign(self, moves: dict[int, list[int] | None], name: str = "t") -> dict[int, int]:
        """Ask for these replicas, None to cancel; {partition: error code}."""
        rows = [ReassignablePartition(partition_index=index, replicas=ids) for index, ids in moves.items()]
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name, partitions=rows)])
        response = self.ask(lambda token: events.ReassignmentRequested(token, request))
        return {row.partition_index: row.error_code for row in response.responses[0].partitions}

    def moving(self, name: str = "t") -> dict[int, tuple[list[int], list[int], list[int]]]:
        """{partition: (replicas, adding, removing)} as ListPartitionReassignments shows them."""
        request = ListPartitionReassignmentsRequest()
        response = self.ask(lambda token: events.ReassignmentsListed(token, request))
        return {
            row.partition_index: (row.replicas, row.adding_replicas, row.removing_replicas)
            for topic in response.topics
            if topic.name == name
            for row in topic.partitions
        }

    def elect(self, partitions: list[int] | None, *, unclean: bool = False, name: str = "t") -> dict[int, int]:
        """Ask for elections; {partition: error code}."""
        asked = None if partitions is None else [TopicPartitions(topic=name, partitions=partitions)]
        request = ElectLeadersRequest(election_type=int(unclean), topic_partitions=asked)
        response = self.ask(lambda token: events.ElectionRequested(token, request))
        return {
            row.partition_id: row.error_code
            for topic in response.replica_election_results
            for row in topic.partition_result
        }

    def join_isr(self, index: int, *joining: int, without: int | None = None, name: str = "t") -> None:
        """The leader proposes these in its ISR, by default all live replicas; `without` excludes a lagging one."""
        partition = TopicPartition(name, index)
        committed = self.world.states[partition]
        leader = self.world.brokers.get(committed.state.leader)
        if leader is None:
            return
        assigned = self.world.topics[name].body.assignment.get(index, ())
        coming = joining or [one for one in assigned if one in self.world.brokers]
        isr = [one for one in dict.fromkeys((*committed.state.isr, *coming)) if one in self.world.brokers]
        isr = [one for one in isr if one != without or one == leader.id]
        row = PartitionData(
            partition_index=index,
            leader_epoch=committed.state.leader_epoch,
            partition_epoch=committed.epoch,
            new_isr_with_epochs=[BrokerState(broker_id=one, broker_epoch=self.world.brokers[one].epoch) for one in isr],
        )
        topic = TopicData(topic_id=self.world.topics[name].body.topic_id, partitions=[row])
        request = AlterPartitionRequest(broker_id=leader.id, broker_epoch=leader.epoch, topics=[topic])
        self.ask(lambda token: events.AlterPartitionRequested(token, request))

    def ask(self, make_event: Callable[[int], events.Event]) -> Any:
        self._token += 1
        self.happen(make_event(self._token))
        return self.replies.pop(self._token)

    def brokers_changed(self) -> None:
        self.happen(events.BrokersRead(dict(self.world.brokers)))

    def _act(self, effect: effects.Effect) -> events.Event | None:
        world = self.world
        match effect:
            case effects.WritePartitions():
                return self._write(effect)
            case effects.WriteTopic():
                if not world.write_topic(self.epoch, effect):
                    topic = world.topics.get(effect.name)
                    states = {one.partition: world.states.get(one.partition) for one in effect.states}
                    return events.TopicWriteLost(effect.name, topic, effect.label, states)
                self._count()
                version = world.topics[effect.name].version
                states = {one.partition: world.states[one.partition] for one in effect.states}
                return events.TopicWritten(effect.name, effect.body, version, effect.label, effect.removed, states)
            case effects.RemoveTopic():
                world.remove_topic(self.epoch, effect.name)
                self._count()
                return events.TopicRemoved(effect.name)
            case effects.RemoveDeletion():
                world.deletions.discard(effect.name)
                self._count()
            case effects.SendToBroker():
                answer = world.deliver(effect)
                self._count()
                if answer is not None:
                    self._arrived.append(answer)
            case effects.Post():
                return effect.event
            case effects.SendReply():
                self.replies[effect.token] = effect.response
            case effects.SetTimer():
                self.timers[effect.timer] = effect.delay_ms
            case effects.PublishEvent():
                world.announced.append(effect)
        return None

    def _write(self, effect: effects.WritePartitions) -> events.PartitionsWritten:
        written: dict[TopicPartition, Partition] = {}
        lost: dict[TopicPartition, Partition | None] = {}
        for write in effect.writes:
            if self.world.write_state(self.epoch, write):
                written[write.partition] = self.world.states[write.partition]
            else:
                lost[write.partition] = self.world.states.get(write.partition)
            self._count()
        return events.PartitionsWritten(written, lost, effect.is_new, effect.then, effect.quiet)

    def _count(self) -> None:
        self.acted += 1
        if self.crash_after is not None and self.acted > self.crash_after:
            raise Crash


def spread(count: int, brokers: Iterable[int], replication: int) -> dict[int, tuple[int, ...]]:
    ids = sorted(brokers)
    return {index: tuple(ids[(index + j) % len(ids)] for j in range(replication)) for index in range(count)}


def started(brokers: int = 3, partitions: int = 4, replication: int = 2, **config: str) -> tuple[World, Term]:
    """A world with one topic `t` that is led everywhere, and its controller."""
    world = World()
    world.add_brokers(*range(1, brokers + 1))
    world.add_topic("t", spread(partitions, world.brokers, replication), **config)
    return world, Term(world).take_over()
