"""The world and controllers of a scenario, printed line by line.

Brokers answer what they are sent before the next event, unless they are silent. A broker refuses the requests of a
controller whose epoch is older than the newest that it has seen, as a real one does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from anabranch.controller import effects, events, failpoints
from anabranch.controller.events import Event, ResponseReceived
from tests.controller.scenarios import rendering
from tests.controller.world import Crash, Deposed, Term, World

Say = Callable[..., None]


@dataclass
class ToldWorld(World):
    """A world with brokers that answer late, and that fence controllers by their epoch."""

    newest: dict[int, int] = field(default_factory=dict)
    """Broker -> the highest controller epoch that it has been sent."""
    unanswered: list[effects.SendToBroker] = field(default_factory=list)
    """What silent brokers have received, in order."""
    fenced: list[int] = field(default_factory=list)
    """Brokers that have refused the last request, for the controller's epoch in it."""

    def deliver(self, effect: effects.SendToBroker) -> ResponseReceived | None:
        """Deliver a request to a broker; return its response, or None if it is dead, silent, or fences it."""
        self.fenced.clear()
        receiver = self.brokers.get(effect.broker_id)
        alive = receiver is not None and receiver.epoch == effect.broker_epoch
        if alive and hasattr(effect.request, "controller_epoch"):
            known = self.newest.get(effect.broker_id, 0)
            if effect.request.controller_epoch < known:
                self.fenced.append(effect.broker_id)
                return None
            self.newest[effect.broker_id] = effect.request.controller_epoch
        if alive and effect.broker_id in self.silent:
            self.unanswered.append(effect)
        return super().deliver(effect)

    def answers_of(self, broker: int) -> list[ResponseReceived]:
        """What a broker that was silent answers at last, to all that it was sent in its present life."""
        held = [effect for effect in self.unanswered if effect.broker_id == broker]
        self.unanswered = [effect for effect in self.unanswered if effect.broker_id != broker]
        return [
            ResponseReceived(broker, effect.broker_epoch, effect.request, self._answer(broker, effect.request))
            for effect in held
            if effect.broker_epoch == self.brokers[broker].epoch
        ]


class ToldTerm(Term):
    """A controller that prints its actions, and may die at a failpoint (`controller.failpoints`)."""

    world: ToldWorld

    def __init__(self, world: ToldWorld, say: Say, life_of: Callable[[int, int], int], **settings: Any) -> None:
        super().__init__(world, **settings)
        self._say = say
        self._life_of = life_of
        self.dies_at = ""
        """The step at which it dies; with `:2`, once the second partition of it is written."""

    def _act(self, effect: effects.Effect) -> Event | None:
        match effect:
            case effects.WritePartitions():
                return self._write_partitions(effect)
            case effects.WriteTopic():
                return self._write_topic(effect)
            case effects.SendToBroker():
                outcome = super()._act(effect)
                request = rendering.request(effect.request)
                self._say("send", request, to=effect.broker_id)
                if self.world.fenced:
                    self._say("refused", "STALE_CONTROLLER_EPOCH", to=effect.broker_id)
                return outcome
            case effects.Connect():
                life = self._life_of(effect.broker.id, effect.broker.epoch)
                self._say("connect", "" if life == 1 else f"in life {life}", to=effect.broker.id)
            case effects.Disconnect():
                self._say("disconnect", to=effect.broker_id)
            case effects.RemoveTopic():
                self._say(f"remove topic {effect.name}")
            case effects.RemoveDeletion():
                self._say(f"drop the request to delete {effect.name}")
            case effects.WriteFeatures():
                self._say("write features: " + ", ".join(f"{name} {level}" for name, level in effect.levels.items()))
            case effects.SetTimer():
                self._say(f"timer {effect.timer} in {effect.delay_ms} ms")
            case effects.SendReply():
                self._say(f"answer: {rendering.reply(effect.response)}")
            case effects.PublishEvent():
                self._say(rendering.announced(effect))
        return super()._act(effect)

    def _write_partitions(self, effect: effects.WritePartitions) -> Event | None:
        self._arm(effect.label, len(effect.writes))
        before = self.acted
        try:
            outcome = super()._act(effect)
        except (Crash, Deposed):
            tried = effect.writes[: self.acted - before] or effect.writes[:1]
            for write in tried:
                self._say(f"write {effect.label}: {rendering.partition_write(write)}")
            raise
        assert isinstance(outcome, events.PartitionsWritten)
        for write in effect.writes:
            self._say(f"write {effect.label}: {rendering.partition_write(write)}")
            if write.partition in outcome.lost:
                found = outcome.lost[write.partition]
                self._say(f"lost, there is: {'nothing' if found is None else rendering.leadership(found.state)}")
        return outcome

    def _write_topic(self, effect: effects.WriteTopic) -> Event | None:
        known = self.world.topics.get(effect.name)
        change = "gone" if known is None else rendering.topic_change(effect.name, known.body, effect.body)
        self._say(f"write {effect.label}: topic {effect.name}: {change}")
        for write in effect.states:
            self._say(f"with {rendering.partition_write(write)}")
        self._arm(effect.label, 1)
        outcome = super()._act(effect)
        if isinstance(outcome, events.TopicWriteLost):
            self._say("lost: another writer has changed it first")
        return outcome

    def _arm(self, label: str, writes: int) -> None:
        if self.dies_at and writes and failpoints.step_of(self.dies_at) == label:
            count = self.dies_at.removeprefix(label).removeprefix(":")
            self.crash_after = self.acted + (int(count) if count else writes) - 1
