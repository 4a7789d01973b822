"""An active fault rule of a cluster: its hits, held requests and actions."""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NotRequired, Protocol, TypedDict, TypeVar, Union, cast

from anabranch.clock.spans import parse_seconds
from anabranch.faults.matching import Matcher
from anabranch.faults.rule import CONTINUOUS
from anabranch.faults.rule_fields import RuleFields
from anabranch.faults.rule_json import to_json
from anabranch.faults.trigger import Trigger
from anabranch.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from anabranch.faults.matching import RequestView
    from anabranch.faults.rule import Rule


Hit = Union["RequestView", Trigger]
"""A request or trigger that a rule has hit."""


class RuleRow(TypedDict):
    """A fault rule, and what it has hit."""

    name: str
    rule: RuleFields
    met: Annotated[int, "the number of requests that matched"]
    hits: Annotated[int, "the number of these that it has hit"]
    held: Annotated[int, "the number of requests that wait for `release`"]
    spent: Annotated[bool, "whether it has used up its hits or its time, or was removed"]
    removed: bool
    waiting_for: NotRequired[
        Annotated[list[int], "in a cluster of processes: the nodes that are down, and get the rule when they return"]
    ]


class FaultActions(Protocol):
    """The interface through which rules act on brokers."""

    def check_can_freeze(self) -> None:
        """Raise an error if brokers cannot be frozen here."""

    def apply(self, what: str, node_id: int) -> None:
        """Apply an action to a broker."""

    def undo(self, what: str, node_id: int) -> None:
        """Undo a continuous action."""

    def elect(self, how: str, partitions: Collection[TopicPartition]) -> None:
        """Elect leaders."""

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run work in the background."""


class Decision(NamedTuple):
    """Another process's decision whether a rule hits a request."""

    hit: bool
    spent: bool = False
    """Whether the rule can hit no further request."""


Decide = Callable[["ActiveRule", "RequestView"], Awaitable[Decision]]
"""Decides whether a rule hits a request, where the requests of several nodes are counted together."""


T = TypeVar("T")


class InTime(Protocol):
    """Calls a function in the time of a cluster, which may have a clock of its own."""

    def __call__(self, work: Callable[[], T]) -> T:
        """Return what the function returns."""


def call_here(work: Callable[[], T]) -> T:
    """Call a function in the time of the caller."""
    return work()


class RuleNeverHit(AssertionError):
    """A rule was never hit, so the test did not exercise its fault."""


class ActiveRule:
    """One rule of a cluster. A test reads `hits` and waits with `wait_hit`."""

    def __init__(
        self,
        rule: Rule,
        on_hit: Callable[[ActiveRule, Hit], None],
        at_work: Callable[[str], bool] = lambda _: False,
        actions: FaultActions | None = None,
        decide: Decide | None = None,
        in_time: InTime = call_here,
    ) -> None:
        """`on_hit` is called for each hit; `at_work` tells whether a named rule is active; `actions` act on brokers.

        With `decide` the rule's counts apply to the requests of several nodes, and this node does not evaluate them.
        `in_time` calls a function in the time of the cluster.
        """
        self.rule = rule
        self.matcher = Matcher(rule)
        self.met = 0
        """The number of requests that matched the rule."""
        self.hits = 0
        """The number of these that it changed, delayed or left unanswered."""
        self.held = 0
        """The number of requests that wait for `release`."""
        self.removed = False
        self.decide = decide
        self._in_time = in_time
        self._spent_elsewhere = False
        self._actions = actions
        self._acted_on: dict[int, None] = {}
        """The brokers under a continuous action."""
        self._later: list[Callable[[], Awaitable[Any]]] = []
        self._on_hit = on_hit
        self._at_work = at_work
        self._ends_s: float | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._rng = random.Random(rule.seed)
        self._changed: asyncio.Future[None] | None = None
        self._released: asyncio.Future[None] | None = None
        self._is_released = False
        self._at_removal: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<rule {self.rule.name}: met {self.met}, hits {self.hits}>"

    @property
    def is_behind(self) -> bool:
        """Whether it has postponed work."""
        return bool(self._later)

    @property
    def spent(self) -> bool:
        """Whether the rule was removed, or has used up its hits or its time."""
        if self.decide is not None:
            return self.removed or self._spent_elsewhere
        rule = self.rule
        return self.removed or bool(rule.times and self.hits >= rule.times) or bool(rule.until and self._is_over())

    @property
    def withholds_metadata(self) -> bool:
        """Whether brokers get no new metadata because of the rule."""
        return self.rule.stale_metadata and not self.spent and not self._is_released

    def activate(self) -> None:
        """Start the rule's time, when the first broker follows it."""
        if self._ends_s is None and self.rule.until:
            self._in_time(self._start_time)

    def _start_time(self) -> None:
        loop = asyncio.get_running_loop()
        self._ends_s = loop.time() + parse_seconds(self.rule.until)
        if self.rule.stale_metadata:
            self._ending = loop.call_at(self._ends_s, self._run_postponed)

    def _is_over(self) -> bool:
        return self._ends_s is not None and self._in_time(asyncio.get_running_loop().time) >= self._ends_s

    def hit(self, what: Hit) -> bool:
        """Count a matching request, step or write; returns whether it is hit."""
        rule = self.rule
        if rule.while_rule and not self._at_work(rule.while_rule):
            return False
        self.met += 1
        due = (
            not self.spent
            and self.met > rule.after
            and (self.met - rule.after - 1) % rule.every == 0
            and (rule.probability >= 1 or self._rng.random() < rule.probability)
        )
        if due:
            self._count_hit(what)
        return due

    async def decide_remotely(self, view: RequestView) -> bool:
        """Have the decision made elsewhere whether a matching request is hit; returns it."""
        assert self.decide is not None
        self.met += 1
        hit, spent = await self.decide(self, view)
        self._spent_elsewhere |= spent
        hit = hit and not self.removed
        if hit:
            self._count_hit(view)
        return hit

    def _count_hit(self, what: Hit) -> None:
        self.hits += 1
        self._on_hit(self, what)
        self._notify()

    def apply_action(self, node_id: int) -> None:
        """Apply the rule's action to its brokers; `node_id` is the broker of the hit."""
        rule, actions = self.rule, self._actions
        if actions is None:
            return
        for one in (rule.on or (node_id,)) if rule.node else ():
            if rule.node in CONTINUOUS:
                if self._is_released:
                    continue
                self._acted_on[one] = None
            actions.apply(rule.node, one)
        if rule.elect:
            actions.elect(rule.elect, [TopicPartition(*one) for one in itertools.product(rule.topic, rule.partition)])

    def postpone(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Run this when the rule is released or removed, or its time is over; at once if it already was released."""
        self._later.append(work)
        if self._is_released:
            self._release_all()

    async def catch_up(self) -> None:
        """Run postponed work now, in order: a later request of its kind is not hit, and must not be overridden."""
        works, self._later = self._later, []
        await _all_of(works)

    def _release_all(self) -> None:
        """Undo continuous actions, and run postponed work in order."""
        if self._actions is None:
            return
        for node_id in self._acted_on:
            self._actions.undo(self.rule.node, node_id)
        self._acted_on.clear()
        self._run_postponed()

    def _run_postponed(self) -> None:
        if self._later and self._actions is not None:
            self._actions.run(functools.partial(_all_of, self._later))
            self._later = []

    def delay_s(self) -> float:
        """The delay of a request, in seconds."""
        if not self.rule.delay_ms:
            return 0.0
        quantiles = self.rule.delay_ms
        if len(quantiles) == 1:
            return quantiles[0] / 1000
        place, part = divmod(self._rng.random() * (len(quantiles) - 1), 1)
        low, high = quantiles[int(place)], quantiles[int(place) + 1]
        return (low + (high - low) * part) / 1000

    async def wait_hit(self, n: int = 1, timeout_s: float = 30.0) -> None:
        """Wait until the rule has `n` hits. TimeoutError reports the number so far, at once if no hit can follow."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.hits < n and not self.spent:
                    self._changed = self._changed or asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._changed)
        except TimeoutError:
            raise TimeoutError(f"after {timeout_s:g} s {self.account()}") from None
        if self.hits < n:
            raise TimeoutError(f"{self.account()}, and can hit no more")

    async def pass_barrier(self) -> None:
        """Wait until the rule is released, or removed."""
        if self._is_released:
            return
        self._released = self._released or asyncio.get_running_loop().create_future()
        self.held += 1
        self._notify()
        try:
            await asyncio.shield(self._released)
        finally:
            self.held -= 1

    def release(self) -> None:
        """Release held requests, frozen brokers and postponed work; hold nothing from now on."""
        self._is_released = True
        self._release_all()
        if self._released is not None and not self._released.done():
            self._released.set_result(None)

    def remove(self) -> None:
        """Stop hitting, and release everything."""
        self.removed = True
        if self._ending is not None:
            self._ending.cancel()
        self.release()
        self._notify()
        for call in self._at_removal:
            call()
        self._at_removal.clear()

    def on_removal(self, call: Callable[[], None]) -> None:
        """Call this when the rule is removed; at once if it already was."""
        if self.removed:
            call()
        else:
            self._at_removal.append(call)

    def account(self) -> str:
        """The rule's result in one line."""
        if not self.met:
            return f"rule {self.rule.name} matched no request"
        return f"rule {self.rule.name} has hit {self.hits} of {self.met} matching requests"

    def row(self) -> RuleRow:
        """The rule as a JSON row."""
        return {
            "name": self.rule.name,
            "rule": cast("RuleFields", to_json(self.rule)),
            "met": self.met,
            "hits": self.hits,
            "held": self.held,
            "spent": self.spent,
            "removed": self.removed,
        }

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None


async def _all_of(works: Sequence[Callable[[], Awaitable[Any]]]) -> None:
    for work in works:
        await work()
