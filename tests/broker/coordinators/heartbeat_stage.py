"""Common parts of KIP-848 and streams group scenarios: members that send heartbeats.

A member knows what it was told (`told`), what it has (`has`) and the epoch that it believes in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from anabranch.broker.coordinators.consumer_groups.assignment import within
from anabranch.protocol.errors import KafkaError
from tests.scenario_text import NotUnderstood, Stage, phrase


class HeartbeatStage(Stage, ABC):
    """One group whose members say what they have; subclasses have the group, its members and its journal."""

    rendering: Any
    """The module that shows the group."""
    administration: Any
    """The module that authorizes requests about the group."""

    def __init__(self) -> None:
        super().__init__()
        self.stores = True
        self.answers = True

    @abstractmethod
    def the_group(self) -> Any: ...

    @abstractmethod
    def member(self, name: str) -> Any: ...

    @abstractmethod
    def _beat(self, one: Any) -> None: ...

    @abstractmethod
    def _take(self, decision: Any) -> None: ...

    @phrase("MEMBER sends a heartbeat")
    def beats(self, name: str) -> None:
        """It says nothing but its epoch, and what it has if that has changed."""
        self._beat(self.member(name))

    @phrase("MEMBER gives up what it was told to")
    def gives_up(self, name: str) -> None:
        """It goes on with only what it was told, and says so at once."""
        one = self.member(name)
        if within(one.has, one.told):
            raise NotUnderstood(f"{name} was told to give nothing up")
        one.has = one.told
        self._beat(one)

    @phrase("MEMBER wakes up in epoch EPOCH and REST")
    def wakes_up(self, name: str, epoch: str, rest: str) -> None:
        """The member goes on with what it was about to do in an epoch that may be over."""
        self.member(name).epoch = int(epoch)
        self.perform(f"{name} {rest}")

    @phrase("REST, and the answer is lost")
    def loses_answer(self, rest: str) -> None:
        """It is done, but the member does not hear of it."""
        self.answers = False
        self.perform(rest)
        self.answers = True

    @phrase("REST, and the journal refuses it")
    def refuses(self, rest: str) -> None:
        """The records cannot be stored: nothing has happened, and the member is told to try again."""
        self.stores = False
        self.perform(rest)
        self.stores = True

    @phrase("group")
    def asked_group(self) -> None:
        """The state, and each member: its epoch, what it has, what it is to have."""
        group = self.the_group()
        self.lines += [self.rendering.state(group), *self.rendering.members(group)]

    def show_commit(self, name: str, event: Any) -> None:
        """Show whether a member may commit."""
        try:
            self.administration.authorize(self.the_group(), event)
        except KafkaError as refused:
            self.lines.append(f"answer {name}: {refused.code.name}")
        else:
            self.lines.append(f"answer {name}: may commit in epoch {event.generation}")

    @abstractmethod
    def decide(self, one: Any, request: Any) -> Any: ...

    def resolve(self, decision: Any) -> None:
        """Do what a decision asks for beside its records."""

    def send(self, one: Any, request: Any) -> Any:
        """The answer, if there is one and it comes; shows the records that it took, and the answer."""
        before = self.rendering.state(self.the_group())
        try:
            decision = self.decide(one, request)
        except KafkaError as refused:
            self.lines.append(f"answer {one.name}: {refused.code.name}")
            one.forget()
            return None
        if decision.records and not self.stores:
            self.lines.append(f"answer {one.name}: COORDINATOR_NOT_AVAILABLE")
            return None
        self._take(decision)
        told = decision.answer
        self.lines.append(f"answer {one.name}: {self.rendering.answer(told)}" + ("" if self.answers else " (lost)"))
        self.resolve(decision)
        if self.rendering.state(self.the_group()) != before:
            self.lines.append(f"group {self.rendering.state(self.the_group())}")
        return told if self.answers else None
