"""The fault rules of one cluster, in the order of their creation.

    armed = cluster.faults.add(Rule(api=("Produce",), topic=("orders",), error="NOT_LEADER_OR_FOLLOWER", times=2))
    await armed.wait_hit()

    with cluster.faults(Rule(api=("Fetch",), delay_ms=(200.0,))) as armed:
        ...                                     # raises RuleNeverHit at the end, if no Fetch came

Rules belong to the cluster, not to its nodes: a node that starts or restarts applies them as soon as it has started.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol, Unpack

from anabranch.faults.active_rule import ActiveRule, Decide, FaultActions, Hit, InTime, RuleNeverHit, call_here
from anabranch.faults.disks import fail_writes
from anabranch.faults.dispatcher import FaultInjectingDispatcher
from anabranch.faults.matching import NodeContext
from anabranch.faults.rule import FREEZE, KILL, Rule, about_requests, is_about_links
from anabranch.faults.rule_json import InvalidRule, check_given, from_json
from anabranch.faults.trigger import Trigger
from anabranch.faults.validation import SPANS, check
from anabranch.protocol.registry import BY_KEY

if TYPE_CHECKING:
    from anabranch.broker.authorization.peer import Peer
    from anabranch.broker.dispatch.dispatcher import Dispatcher
    from anabranch.broker.dispatch.services import Services
    from anabranch.broker.node.app import Node
    from anabranch.faults.rule_fields import RuleFields

REMOVED_KEPT: Final = 20
RuleListener = Callable[[ActiveRule, int, Hit], None]
"""Called for each hit: the rule, the node, and the request or trigger."""


class Served(Protocol):
    """The interface of a server whose dispatcher can be wrapped."""

    dispatcher: Dispatcher

    @property
    def peers(self) -> Iterable[Peer]:
        """The peers with open connections."""


class Faults:
    """Adds and removes rules, and gives each node the rules about it."""

    def __init__(
        self,
        node_ids: Collection[int],
        actions: FaultActions | None = None,
        listeners: Collection[str] = (),
        refuse: Callable[[Rule], None] = lambda rule: None,
        in_time: InTime = call_here,
    ) -> None:
        """`actions` act on brokers; `listeners` their listener names; `refuse` may raise InvalidRule, too.

        `in_time` calls a function in the time of the cluster.
        """
        self._node_ids = node_ids
        self._listener_names = listeners
        self._actions = actions
        self._refuse = refuse
        self._in_time = in_time
        self._nodes: dict[int, tuple[Served, NodeContext]] = {}
        self._ours: dict[int, Node] = {}
        """The nodes, if this process runs the cluster (no proxy)."""
        self._dispatchers: dict[int, FaultInjectingDispatcher] = {}
        self._rules: dict[str, ActiveRule] = {}
        self.removed: deque[ActiveRule] = deque(maxlen=REMOVED_KEPT)
        """The rules removed last."""
        self._number = 0
        self._listeners: dict[RuleListener, None] = {}
        self._on_change: Callable[[], None] = lambda: None

    def __call__(self, rule: Rule | None = None, *, optional: bool = False, **fields: Unpack[RuleFields]) -> _Armed:
        """A block during which a rule is active. Raises RuleNeverHit at its end without a hit, unless `optional`."""
        return _active_rule(self, rule, optional=optional, fields=fields)

    def add(
        self, rule: Rule | None = None, *, decide: Decide | None = None, **fields: Unpack[RuleFields]
    ) -> ActiveRule:
        """Add a rule.

        Args:
            rule: The rule.
            decide: Decides for each matching request whether the rule hits it; by default the rule's counts decide.
            **fields: Or its fields, as in JSON: api="Produce", error="REQUEST_TIMED_OUT".

        Raises:
            InvalidRule: The rule can never hit, or its name is taken; the message suggests a correction.
        """
        check_given(rule, fields)
        rule = rule or from_json(fields)
        if not rule.name:
            rule = self._name_rule(rule)
        if rule.name in self._rules:
            raise InvalidRule(f"rule {rule.name} already exists; remove it, or use another name")
        self._refuse(rule)
        check(rule, self._node_ids, self._listener_names, self._spans(rule))
        if (rule.node == FREEZE or (rule.step and rule.node == KILL)) and self._actions is not None:
            try:
                self._actions.check_can_freeze()
            except RuntimeError as error:
                raise InvalidRule(str(error)) from None
        armed = ActiveRule(rule, self._was_hit, self._at_work, self._actions, decide, self._in_time)
        self._rules[rule.name] = armed
        self._update_nodes()
        return armed

    def _spans(self, rule: Rule) -> Mapping[str, tuple[int, int]]:
        """The version ranges that some broker accepts, of the rule's APIs; all versions while no broker runs."""
        found: dict[str, tuple[int, int]] = {}
        for node in self._ours.values():
            audiences = _innermost(node.server).audiences
            askers = [audiences.nodes] if is_about_links(rule) else [audiences.clients, audiences.others]
            for audience in askers:
                for key, (first, last) in audience.accepted.items():
                    low, high = found.get(BY_KEY[key].name, (first, last))
                    found[BY_KEY[key].name] = min(low, first), max(high, last)
        return found or SPANS

    def get(self, name: str) -> ActiveRule:
        """A rule by name. KeyError if it does not exist."""
        return self._rules[name]

    def __iter__(self) -> Iterator[ActiveRule]:
        return iter(list(self._rules.values()))

    def __len__(self) -> int:
        return len(self._rules)

    def remove(self, name: str) -> ActiveRule:
        """Remove a rule, and release what it holds. KeyError if it does not exist."""
        armed = self._rules.pop(name)
        self._update_nodes()
        armed.remove()
        self.removed.append(armed)
        return armed

    def clear(self) -> None:
        """Remove all rules."""
        for name in list(self._rules):
            self.remove(name)

    def on_hit(self, listener: RuleListener) -> None:
        """Call `listener(armed, node_id, view)` for each hit; a listener that is added twice is called once."""
        self._listeners[listener] = None

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change of the set of rules."""
        self._on_change = listener

    def watch(self, node: Node) -> None:
        """Apply the rules to a node that has started."""
        self._ours[node.settings.node_id] = node
        self.follow(node.server, surroundings_of(node.services))

    def follow(self, server: Served, at: NodeContext) -> None:
        """Apply the rules about a node to its server, from now on."""
        self._nodes[at.node_id] = server, at
        self._dispatchers.pop(at.node_id, None)  # from before its restart
        if self._rules:
            self._notify(server, at)

    def forget(self, node_id: int) -> None:
        """Forget a node that has ended."""
        self._nodes.pop(node_id, None)
        self._dispatchers.pop(node_id, None)

    def _name_rule(self, rule: Rule) -> Rule:
        while True:
            self._number += 1
            name = f"rule-{self._number}"
            if name not in self._rules:
                return dataclasses.replace(rule, name=name)

    def has_step_rules(self, node_id: int) -> bool:
        """Whether a rule is about steps of this broker."""
        return any(one.rule.step and not one.spent and _is_at(one.rule, node_id) for one in self._rules.values())

    def on_step(self, node_id: int, step: str) -> None:
        """Report a durable step of a broker's controller or coordinator."""
        for armed in [one for one in self._rules.values() if one.rule.step]:
            rule = armed.rule
            if not ({step, step.rstrip("0123456789").rstrip(":")} & set(rule.step)) or not _is_at(rule, node_id):
                continue
            if not armed.spent and armed.hit(Trigger(node_id, "step", step)):
                armed.apply_action(node_id)

    def _was_hit(self, armed: ActiveRule, what: Hit) -> None:
        node_id = what.node_id if isinstance(what, Trigger) else what.at.node_id
        for listener in self._listeners:
            listener(armed, node_id, what)

    def _at_work(self, name: str) -> bool:
        armed = self._rules.get(name)
        return armed is not None and not armed.spent

    def _update_nodes(self) -> None:
        for server, at in self._nodes.values():
            self._notify(server, at)
        self._on_change()

    def _notify(self, server: Served, at: NodeContext) -> None:
        """Give a node the rules about it; a node without rules gets its own dispatcher back."""
        node_id = at.node_id
        mine = [one for one in self._rules.values() if _is_at(one.rule, node_id)]
        for one in mine:
            one.activate()
        if (node := self._ours.get(node_id)) is not None:
            fail_writes(node, [one for one in mine if one.rule.disk])
        mine = [one for one in mine if about_requests(one.rule)]
        faulty = self._dispatchers.get(node_id)
        if faulty is None:
            if not mine:
                return
            faulty = self._dispatchers[node_id] = FaultInjectingDispatcher(_innermost(server), at)
            _replace(server, faulty.inner, faulty)
        faulty.set_rules(mine, list(server.peers))
        if not mine and _innermost(server) is faulty:  # otherwise a later wrapper is around it
            _replace(server, faulty, faulty.inner)
            del self._dispatchers[node_id]


def _is_at(rule: Rule, node_id: int) -> bool:
    return not rule.brokers or node_id in rule.brokers


def surroundings_of(services: Services) -> NodeContext:
    """The context of a node in this process."""
    fetch_sessions = services.broker and services.broker.fetch_sessions
    return NodeContext(
        services.settings.node_id,
        services.metadata.topic_name,
        lambda session: fetch_sessions.get().partitions_of(session) if fetch_sessions else [],
    )


def _innermost(server: Served) -> Dispatcher:
    """The dispatcher inside those wrappers that stay outermost."""
    found = server.dispatcher
    while found.outermost:
        found = found.inner
    return found


def _replace(server: Served, old: Dispatcher, new: Dispatcher) -> None:
    if server.dispatcher is old:
        server.dispatcher = new
        return
    outer = server.dispatcher
    while outer.inner is not old:
        outer = outer.inner
    outer.inner = new


_Armed = contextlib.AbstractContextManager[ActiveRule]


@contextlib.contextmanager
def _active_rule(faults: Faults, rule: Rule | None, *, optional: bool, fields: RuleFields) -> Iterator[ActiveRule]:
    armed = faults.add(rule, **fields)
    try:
        yield armed
    finally:
        if not armed.removed:
            faults.remove(armed.rule.name)
    if not armed.hits and not optional:
        raise RuleNeverHit(armed.account())
