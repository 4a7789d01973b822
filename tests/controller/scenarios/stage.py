"""What a controller scenario may say (`README.md` lists it), and what each phrase does to the world and the machine."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from anabranch.controller import events
from anabranch.controller.events import Event
from anabranch.controller.model import Partition, TopicPartition
from anabranch.controller.settings import ControllerSettings
from anabranch.protocol.apis.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from anabranch.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from anabranch.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from anabranch.protocol.apis.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.controller.scenarios import rendering
from tests.controller.scenarios.rendering import ids
from tests.controller.scenarios.told import ToldTerm, ToldWorld
from tests.controller.world import Crash, Deposed
from tests.scenario_text import NotUnderstood, Stage, phrase

FILES: Final = sorted(Path(__file__).parent.glob("*.txt"))


class ControllerStage(Stage):
    """Brokers, topics, admins, and the controllers that follow one another."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ToldWorld()
        self._lives: dict[int, list[int]] = {}
        self._settings: dict[str, Any] = {}
        self._terms: list[ToldTerm] = []
        self._over: set[int] = set()
        self._tokens = itertools.count(1)

    # what is prepared

    @phrase("brokers IDS")
    def brokers(self, broker_ids: str) -> None:
        """These brokers are registered before anything happens."""
        for broker in numbers(broker_ids):
            self._register(broker)

    @phrase("topic TOPIC on REST")
    def topic(self, name: str, rest: str) -> None:
        """A topic: the replicas of each partition, then settings."""
        words = rest.split(" ")
        assigned = [tuple(numbers(word)) for word in words if "=" not in word]
        config = dict(word.split("=") for word in words if "=" in word)
        self.world.add_topic(name, dict(enumerate(assigned)))
        self.world.topics[name] = replace(self.world.topics[name], config=config)

    @phrase("setting NAME VALUE")
    def setting(self, name: str, text: str) -> None:
        """A setting of the controllers elected from now on, by its name in `controller.settings`."""
        known = getattr(ControllerSettings(node_id=9), name)
        self._settings[name] = text == "true" if isinstance(known, bool) else int(text)

    # brokers

    @phrase("broker BROKER dies")
    def dies(self, broker: str) -> None:
        """A broker's registration vanishes, and the controller in office sees it."""
        del self.world.brokers[int(broker)]
        self._noticed()

    @phrase("broker BROKER returns", "broker BROKER restarts")
    def returns(self, broker: str) -> None:
        """A broker registers, in its next life. If it was not seen to be away, it has restarted."""
        self.world.silent.discard(int(broker))
        self._register(int(broker))
        self._noticed()

    @phrase("broker BROKER falls silent")
    def silent(self, broker: str) -> None:
        """A broker goes on receiving requests and answers none."""
        self.world.silent.add(int(broker))

    @phrase("broker BROKER answers")
    def answers(self, broker: str) -> None:
        """A broker that was silent answers all that it has received meanwhile."""
        self.world.silent.discard(int(broker))
        self._happen(*self.world.answers_of(int(broker)))

    @phrase("broker BROKER asks to stop")
    def stops(self, broker: str) -> None:
        """ControlledShutdown."""
        known = self.world.brokers[int(broker)]
        request = ControlledShutdownRequest(broker_id=known.id, broker_epoch=known.epoch)
        self._ask(lambda token: events.ShutdownRequested(token, request))

    @phrase("the leader of PARTITION asks for isr IDS")
    def asks_for_isr(self, partition: str, isr: str) -> None:
        """AlterPartition from the leader, in the epochs that are current."""
        self._alter_partition(partition, isr)

    @phrase("the leader of PARTITION asks for isr IDS at version VERSION")
    def asks_late(self, partition: str, isr: str, version: str) -> None:
        """AlterPartition that was decided when the state's znode had an earlier version."""
        self._alter_partition(partition, isr, version=int(version))

    @phrase("the leader of PARTITION asks for isr IDS having seen life LIFE of broker BROKER")
    def asks_of_earlier_life(self, partition: str, isr: str, life: str, broker: str) -> None:
        """AlterPartition from what the leader knows of an earlier life of one of the replicas (KIP-903)."""
        self._alter_partition(partition, isr, seen={int(broker): self._lives[int(broker)][int(life) - 1]})

    @phrase("the leader of PARTITION meets a batch with a generation")
    def has_generations(self, partition: str) -> None:
        """AlterPartition by which a leader asks that the topic be marked, before it appends such a batch."""
        committed = self._committed(partition)
        self._alter_partition(partition, ids(committed.state.isr), has_generations=True)

    # admins

    @phrase("an admin asks for COUNT partitions of TOPIC")
    def resize(self, count: str, name: str) -> None:
        """CreatePartitions from our own client, which may ask for fewer as well."""
        topic = CreatePartitionsTopic(name=name, count=int(count), assignments=None, allow_shrink=True)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)
        self._ask(lambda token: events.PartitionsRequested(token, request))

    @phrase("an admin moves PARTITION to IDS")
    def moves(self, partition: str, replicas: str) -> None:
        """AlterPartitionReassignments."""
        self._reassign(partition, numbers(replicas))

    @phrase("an admin cancels the move of PARTITION")
    def cancels(self, partition: str) -> None:
        """AlterPartitionReassignments without replicas."""
        self._reassign(partition, None)

    @phrase("an admin asks for the preferred leader of PARTITION")
    def preferred(self, partition: str) -> None:
        """ElectLeaders, preferred."""
        self._elect(partition, unclean=False)

    @phrase("an admin asks for any leader of PARTITION")
    def unclean(self, partition: str) -> None:
        """ElectLeaders, unclean."""
        self._elect(partition, unclean=True)

    @phrase("an admin deletes TOPIC")
    def deletes(self, name: str) -> None:
        """DeleteTopics: the request to delete it stands in ZooKeeper, and the controller in office sees it."""
        self.world.deletions.add(name)
        if self._in_office() is not None:
            self._happen(events.DeletionsRead(frozenset(self.world.deletions)))

    @phrase("an admin creates topic TOPIC on REST")
    def creates(self, name: str, rest: str) -> None:
        """CreateTopics: the znode is written, and the controller in office sees it."""
        self.topic(name, rest)
        if self._in_office() is not None:
            names = frozenset(self.world.topics)
            self._happen(events.TopicsRead(names, (self.world.snapshot(name),)))

    @phrase("a tool writes the znode of TOPIC unnoticed")
    def touched(self, name: str) -> None:
        """Another writer replaces a topic's znode, with the same content; the controller has not read it yet."""
        known = self.world.topics[name]
        self.world.topics[name] = replace(known, version=known.version + 1)

    @phrase("PARTITION is empty from offset OFFSET")
    def drained(self, partition: str, offset: str) -> None:
        """All records of a partition have expired: its log begins and ends there."""
        self.world.offsets[parsed(partition)] = (int(offset), int(offset))

    @phrase("PARTITION holds offsets FIRST to LAST")
    def holds(self, partition: str, first: str, last: str) -> None:
        """What is left of a partition's log."""
        self.world.offsets[parsed(partition)] = (int(first), int(last) + 1)

    # controllers

    @phrase("a controller is elected")
    def elected(self) -> None:
        """A candidate creates /controller, raises the epoch and reads all znodes."""
        self._terms.append(ToldTerm(self.world, self._tell, self._life, **self._settings))
        self._acting(self._terms[-1], lambda term: term.take_over())

    @phrase("the controller dies")
    def controller_dies(self) -> None:
        """The process of the controller in office ends between two events."""
        self._over.add(self._office().epoch)
        self._say(f"controller {self._terms[-1].epoch} is gone")

    @phrase("the controller will die at STEP")
    def will_die(self, step: str) -> None:
        """The controller in office dies right after this step; `STEP:2`, after the second partition of it."""
        self._office().dies_at = step

    @phrase("timer TIMER fires")
    def timer(self, timer: str) -> None:
        """A timer that the controller has set is due."""
        if timer not in self._office().timers:
            raise NotUnderstood(f"the controller has set {sorted(self._office().timers)}")
        self._happen(events.TimerFired(timer))

    @phrase("controller NUMBER, unaware of its successor, REST")
    def zombie(self, number: str, rest: str) -> None:
        """A controller whose term is over is told something, before it has heard that it is."""
        term = self._terms[int(number) - 1]
        if rest == "sees who is alive":
            self._acting(term, lambda zombie: zombie.happen(events.BrokersRead(dict(self.world.brokers))))
        elif rest.startswith("sees timer "):
            self._acting(term, lambda zombie: zombie.happen(events.TimerFired(rest.removeprefix("sees timer "))))
        else:
            raise NotUnderstood("it may see 'who is alive' or 'timer TIMER'")

    # questions

    @phrase("partition PARTITION")
    def show_partition(self, partition: str) -> None:
        """The state znode of a partition."""
        committed = self.world.states.get(parsed(partition))
        if committed is None:
            self._say(f"{partition} has no state")
        else:
            self._say(f"{partition} {rendering.leadership(committed.state)}, version {committed.epoch}")
            if len(committed.state.gen_start) > 1:
                self._say(f"it has served {rendering.generations(committed.state)}")

    @phrase("topic TOPIC")
    def show_topic(self, name: str) -> None:
        """The znode of a topic."""
        known = self.world.topics.get(name)
        if known is None:
            self._say(f"there is no topic {name}")
            return
        body = known.body
        plan = "" if body.plan is None else f", plan {body.plan.before} -> {body.plan.after}"
        history = " ".join(f"{generation}:{count}" for generation, count in body.history)
        marked = ", has batches with generations" if body.has_generations else ""
        self._say(f"{name} generation {body.generation} with {body.undeleted_partition_count} partitions{plan}{marked}")
        self._say(f"base {body.base}, history {history}")
        for index in sorted(body.assignment):
            self._say(f"{name}-{index} on {rendering.replicas(body, index)}")
        for index, tombstone in sorted(body.retired.items()):
            self._say(f"tombstone of {name}-{index}: epoch {tombstone.leader_epoch}, offset {tombstone.end_offset}")

    @phrase("broker BROKER")
    def show_broker(self, broker: str) -> None:
        """What a broker has been told: the replicas that it holds, and the partitions that its clients may see."""
        for (holder, partition), row in sorted(self.world.held.items(), key=lambda one: one[0]):
            if holder == int(broker):
                leader = rendering.leader_of(row.leader)
                self._say(f"replica {rendering.name_of(partition)} leader {leader} epoch {row.leader_epoch}")
        image = self.world.images.get(int(broker))
        if image is None or not image.topics:
            self._say("shows no topic")
            return
        for name, topic in sorted(image.topics.items()):
            seen = [f"{index} led by {one.leader}" for index, one in sorted(topic.partitions.items())]
            self._say(f"shows {name} generation {topic.generation}: {', '.join(seen)}")

    @phrase("controller")
    def show_controller(self) -> None:
        """What the controller in office believes and is at work on."""
        state = self._office().state
        self._say(f"epoch {state.controller_epoch}, brokers {ids(sorted(state.brokers))}")
        self._say(f"stopping {ids(sorted(state.shutting_down))}, deleting {' '.join(sorted(state.deleting)) or 'none'}")

    # what the phrases share

    def _tell(self, verb: str, rest: str = "", to: int | None = None) -> None:
        if to is None:
            self._say(f"{verb} {rest}".rstrip())
            return
        line = self.lines[-1] if self.lines else ""
        known = line.removeprefix(verb + " ").removesuffix(" " + rest) if rest else line.removeprefix(verb + " ")
        merges = f"{verb} {known} {rest}".rstrip() == line and known.replace(",", "").isdecimal()
        if merges:
            self.lines.pop()
        self._say(f"{verb} {known + ',' if merges else ''}{to} {rest}".rstrip())

    def _say(self, line: str) -> None:
        self.lines.append(line)

    def _life(self, broker: int, epoch: int) -> int:
        return self._lives[broker].index(epoch) + 1

    def _register(self, broker: int) -> None:
        self.world.add_brokers(broker)
        self._lives.setdefault(broker, []).append(self.world.brokers[broker].epoch)

    def _in_office(self) -> ToldTerm | None:
        last = self._terms[-1] if self._terms else None
        return None if last is None or last.epoch in self._over else last

    def _office(self) -> ToldTerm:
        term = self._in_office()
        if term is None:
            raise NotUnderstood("there is no controller in office")
        return term

    def _noticed(self) -> None:
        if self._in_office() is not None:
            self._happen(events.BrokersRead(dict(self.world.brokers)))
        else:
            self._say("no controller sees it")

    def _happen(self, *happened: Event) -> None:
        self._acting(self._office(), lambda term: term.happen(*happened))

    def _acting(self, term: ToldTerm, act: Callable[[ToldTerm], object]) -> None:
        expected = term.dies_at
        try:
            act(term)
        except Crash:
            self._over.add(term.epoch)
            self._say(f"controller {term.epoch} dies")
            return
        except Deposed:
            self._over.add(term.epoch)
            self._say(
                f"refused: the controller epoch is {self.world.controller_epoch}, controller {term.epoch} resigns"
            )
            return
        if expected:
            raise NotUnderstood(f"the controller was to die at {expected}, and has not come there")

    def _ask(self, make_event: Callable[[int], Event]) -> None:
        self._happen(make_event(next(self._tokens)))

    def _committed(self, partition: str) -> Partition:
        return self.world.states[parsed(partition)]

    def _alter_partition(
        self,
        partition: str,
        isr: str,
        *,
        version: int | None = None,
        seen: dict[int, int] | None = None,
        has_generations: bool = False,
    ) -> None:
        name, index = parsed(partition)
        committed = self._committed(partition)
        leader = self.world.brokers[committed.state.leader]
        epochs = {broker.id: broker.epoch for broker in self.world.brokers.values()} | (seen or {})
        row = PartitionData(
            partition_index=index,
            leader_epoch=committed.state.leader_epoch,
            partition_epoch=committed.epoch if version is None else version,
            new_isr_with_epochs=[BrokerState(broker_id=one, broker_epoch=epochs.get(one, -1)) for one in numbers(isr)],
        )
        topic = TopicData(
            topic_id=self.world.topics[name].body.topic_id, partitions=[row], has_generations=has_generations
        )
        request = AlterPartitionRequest(broker_id=leader.id, broker_epoch=leader.epoch, topics=[topic])
        self._ask(lambda token: events.AlterPartitionRequested(token, request))

    def _reassign(self, partition: str, replicas: list[int] | None) -> None:
        name, index = parsed(partition)
        row = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name, partitions=[row])])
        self._ask(lambda token: events.ReassignmentRequested(token, request))

    def _elect(self, partition: str, *, unclean: bool) -> None:
        name, index = parsed(partition)
        asked = [TopicPartitions(topic=name, partitions=[index])]
        request = ElectLeadersRequest(election_type=int(unclean), topic_partitions=asked)
        self._ask(lambda token: events.ElectionRequested(token, request))


def numbers(text: str) -> list[int]:
    """`1,2,3` as numbers. Raises ValueError."""
    return [int(one) for one in text.split(",")]


def parsed(partition: str) -> TopicPartition:
    """`orders-0`. Raises ValueError."""
    name, _, index = partition.rpartition("-")
    return TopicPartition(name, int(index))
