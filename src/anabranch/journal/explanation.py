"""Explains the outcome of an exchange by rules, cluster events and other exchanges.

    Produce v11 of shop to broker 1 was refused with NOT_LEADER_OR_FOLLOWER for orders-3: its leader is broker 2 in
    epoch 5, since 11 ms before, after broker 1 was killed, 26 ms before.

Each error has the kinds of events that cause it. The explanation names the last such event before the response, or else
the first one after it: a broker may act before it records the event. An unknown cause is reported as unknown. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from anabranch.faults.request_fields import GROUP, PARTITION, TOPIC, TRANSACTIONAL_ID
from anabranch.protocol.hashing import partition_of_group
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from anabranch.faults.request_fields import Row
    from anabranch.journal.entry import JournalEntry

BEFORE_S: Final = 60.0
"""How far before the response a cause may lie."""
BEHIND_S: Final = 2.0
"""How long after the response the event of its cause may be recorded."""
DISTURBANCES: Final[Mapping[str, str]] = {
    "node killed": "broker {node} was killed",
    "node stopping": "broker {node} was told to stop",
    "node stopped": "broker {node} had stopped",
    "node frozen": "broker {node} was frozen",
    "node started": "broker {node} had started",
    "broker lost": "the controller lost broker {broker}",
    "broker joined": "broker {broker} joined",
    "session expired": "the ZooKeeper session of broker {node} was ended",
    "session suspended": "broker {node} was cut off from ZooKeeper",
    "session delayed": "the link of broker {node} to ZooKeeper became slow",
    "elected": "broker {controller} became the controller",
}
FENCED: Final = ("FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "KAFKA_STORAGE_ERROR", "OFFSET_NOT_AVAILABLE")
LEADERSHIP: Final = ("NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", *FENCED)
IN_SYNC: Final = ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT")
COORDINATION: Final = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
EPOCHS: Final = ("FENCED_MEMBER_EPOCH", "STALE_MEMBER_EPOCH", "UNRELEASED_INSTANCE_ID")
UNINFORMATIVE: Final = ("The coordinator is not available.", "COORDINATOR_NOT_AVAILABLE")
MEMBERSHIP: Final = ("REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", *EPOCHS)
FENCED_PRODUCERS: Final = ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING")
TOPICS_THAT_ARE_NOT: Final = ("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID")
RESIZED: Final = ("INVALID_PARTITION_METADATA", "INVALID_PARTITIONS")
REGROUPING: Final = ("JoinGroup", "LeaveGroup", "ConsumerGroupHeartbeat", "StreamsGroupHeartbeat")


class ClusterEvent(Protocol):
    """The interface of a cluster event."""

    @property
    def at_s(self) -> float:
        """The time, on the clock of the exchanges."""

    @property
    def kind(self) -> str:
        """The kind."""

    @property
    def detail(self) -> Mapping[str, Any]:
        """The details."""


def explain(entry: JournalEntry, events: Sequence[ClusterEvent], others: Sequence[JournalEntry]) -> list[str]:
    """Explain an outcome in sentences; `others` are the kept exchanges, the oldest first."""
    return list(_Explanation(entry, events, others).sentences())


class _Explanation:
    def __init__(self, entry: JournalEntry, events: Sequence[ClusterEvent], others: Sequence[JournalEntry]) -> None:
        self._entry = entry
        self._events = events
        self._others = [one for one in others if one.number != entry.number]
        self._at_s = entry.at_s + (entry.took_s or 0.0)

    def sentences(self) -> Iterator[str]:
        entry = self._entry
        yield from self._rules()
        if entry.outcome in ("closed", "given up", "open"):
            yield self._explain_unanswered()
        for code, rows in entry.refusals.items():
            for row in rows:
                yield self._refusal(code, row)
        if entry.outcome == "answered" and not entry.refusals:
            yield f"{self._request_head()} was processed without an error, after {_ms(entry.took_s or 0.0)}."
        elif entry.outcome == "unanswered" and not entry.rules:
            yield f"{self._request_head()} requested no response."

    def _request_head(self) -> str:
        request = self._entry.view.request
        node_id = self._entry.view.at.node_id
        whom = f"broker {node_id}" if node_id >= 0 else "a broker"
        return f"{request.api.name} v{request.version} of {request.client_id or 'a client'} to {whom}"

    def _rules(self) -> Iterator[str]:
        overruled = self._entry.overruled
        for name in self._entry.rules:
            overruled_by = ", but another rule overruled it" if name in overruled else ""
            yield f"Rule {name} has hit it{overruled_by}."

    def _explain_unanswered(self) -> str:
        how = {
            "closed": "got no answer, and its connection was closed",
            "given up": "was cancelled by its client",
            "open": "is not answered yet",
        }[self._entry.outcome]
        node_id = self._entry.view.at.node_id
        cause = "" if self._entry.rules else self._last(lambda one: _is_about_node(one, node_id), _disturbance)
        return f"{self._request_head()} {how}{': ' + cause if cause else ''}."

    def _refusal(self, code: str, row: Row) -> str:
        place = _place(row)
        head = f"{self._request_head()} was refused with {code}{f' for {place}' if place else ''}"
        if any(rule.error == code for rule in self._entry.hit_rules):
            return f"{head}, because of a rule."
        cause = self._cause(code, row) or self._said(code)
        return f"{head}: {cause or 'the journal has no reason'}."

    def _said(self, code: str) -> str:
        """The broker's own reason, if the response has only one for this error."""
        said = [one.rstrip(".") for one in self._entry.messages(code) if one not in (code, *UNINFORMATIVE)]
        return f"the broker says: {said[0]}" if len(said) == 1 else ""

    def _cause(self, code: str, row: Row) -> str:
        topic, partition = row.get(TOPIC), row.get(PARTITION)
        if code in LEADERSHIP:
            return self._leader(topic, partition)
        if code in IN_SYNC:
            return self._in_sync(topic, partition)
        if code in COORDINATION:
            return self._coordinator(row)
        if code in MEMBERSHIP:
            return self._regrouping(row)
        if code in FENCED_PRODUCERS:
            return self._rival(row)
        if code in RESIZED:
            return self._last(lambda one: one.kind.startswith("resize") and one.detail.get(TOPIC) == topic, _resize)
        if code in TOPICS_THAT_ARE_NOT:
            return self._missing_topic(topic, partition)
        if code == "NOT_CONTROLLER":
            return self._last(lambda one: one.kind == "elected", _disturbance)
        return ""

    def _leader(self, topic: Any, partition: Any) -> str:
        def matches(one: ClusterEvent) -> bool:
            return one.kind == "leader" and (one.detail[TOPIC], one.detail[PARTITION]) == (topic, partition)

        event = self._nearest(self._events, matches) or self._nearest(
            self._leaders_in_metadata(topic, partition), matches
        )
        if event is None:
            return ""
        known = f"its leader is broker {event.detail['leader']} in epoch {event.detail['leader_epoch']}"
        if event.detail["leader"] < 0:
            known = f"it has no leader in epoch {event.detail['leader_epoch']}"
        before = self._last(lambda one: one.kind in DISTURBANCES, _disturbance, at_s=event.at_s, behind_s=0.0)
        return f"{known}, since {self._when(event)}{f', after {before}' if before else ''}"

    def _leaders_in_metadata(self, topic: Any, partition: Any) -> list[ClusterEvent]:
        """The leaders of a partition that Metadata responses have named: the only source in a proxy."""
        found: list[ClusterEvent] = []
        for one in self._others:
            for leader, epoch in one.leaders_in_response(topic, partition):
                if not found or found[-1].detail["leader_epoch"] < epoch or epoch < 0:
                    detail = {TOPIC: topic, PARTITION: partition, "leader": leader, "leader_epoch": epoch}
                    found.append(_InferredEvent(one.at_s, "leader", detail))
        return found

    def _in_sync(self, topic: Any, partition: Any) -> str:
        def matches(one: ClusterEvent) -> bool:
            return one.kind == "isr" and (one.detail[TOPIC], one.detail[PARTITION]) == (topic, partition)

        def describe(one: ClusterEvent) -> str:
            return f"its in-sync replicas are {', '.join(map(str, one.detail['isr']))}, since"

        known = self._last(matches, describe)
        before = self._last(lambda one: one.kind in DISTURBANCES, _disturbance)
        return ", after ".join(one for one in (known, before) if one)

    def _coordinator(self, row: Row) -> str:
        for kind, topic in ((GROUP, CONSUMER_OFFSETS_TOPIC), (TRANSACTIONAL_ID, TRANSACTION_STATE_TOPIC)):
            key = row.get(kind) or self._entry.view.base.get(kind)
            seen = self._partitions(topic)
            if key is not None and seen:
                index = partition_of_group(str(key), max(seen) + 1)
                cause = self._leader(topic, index)
                return f"its coordinator is the leader of {topic}-{index}: {cause}" if cause else ""
            if key is not None and (reason := self._missing_coordinator(str(key))):
                return f"{topic}, the topic of the coordinators, cannot be created: {reason}"
        return self._last(lambda one: one.kind in DISTURBANCES, _disturbance)

    def _missing_coordinator(self, key: str) -> str:
        """The broker's reason in the last FindCoordinator response about a key."""
        for one in (self._entry, *reversed(self._others)):
            if key in one.names_of(GROUP) | one.names_of(TRANSACTIONAL_ID):
                for reason in one.coordinator_refusals(key):
                    return "" if reason in UNINFORMATIVE else reason.rstrip(".")
        return ""

    def _regrouping(self, row: Row) -> str:
        group = row.get(GROUP) or self._entry.view.base.get(GROUP)
        found = self._other(
            lambda one: one.api in REGROUPING and group in one.names_of(GROUP) and self._is_foreign(one)
        )
        return f"group {group} was changed by {self._request_text(found)}" if found is not None else ""

    def _is_foreign(self, other: JournalEntry) -> bool:
        return other.view.peer != self._entry.view.peer or other.api == "LeaveGroup"

    def _rival(self, row: Row) -> str:
        key = row.get(TRANSACTIONAL_ID) or self._entry.view.base.get(TRANSACTIONAL_ID)
        if key is None:
            return ""
        found = self._other(lambda one: one.api == "InitProducerId" and key in one.names_of(TRANSACTIONAL_ID))
        return f"{key} was taken over by {self._request_text(found)}" if found is not None else ""

    def _missing_topic(self, topic: Any, partition: Any) -> str:
        kinds = ("topic deletion", "topic deleted", "partition removed")
        gone = self._last(lambda one: one.kind in kinds and one.detail.get(TOPIC) == topic, _removal)
        if gone:
            return gone
        known = self._partitions(topic)
        if known and partition is not None:
            return f"{topic} has partitions 0 to {max(known)}, as far as the journal shows"
        return "" if known or topic is None else "no event names such a topic"

    def _partitions(self, topic: Any) -> set[int]:
        """The partitions of a topic that events name."""
        return {one.detail[PARTITION] for one in self._events if one.kind == "leader" and one.detail[TOPIC] == topic}

    # --- events by time

    def _last(
        self,
        matches: Callable[[ClusterEvent], bool],
        describe: Callable[[ClusterEvent], str],
        at_s: float | None = None,
        behind_s: float = BEHIND_S,
    ) -> str:
        found = self._nearest(self._events, matches, at_s, behind_s)
        return "" if found is None else f"{describe(found)} {self._when(found)}"

    def _nearest(
        self,
        events: Iterable[ClusterEvent],
        matches: Callable[[ClusterEvent], bool],
        at_s: float | None = None,
        behind_s: float = BEHIND_S,
    ) -> ClusterEvent | None:
        """The last matching event before the response, or else the first one after it."""
        at_s = self._at_s if at_s is None else at_s
        near = [one for one in events if at_s - BEFORE_S <= one.at_s <= at_s + behind_s and matches(one)]
        before = [one for one in near if one.at_s <= at_s]
        return before[-1] if before else near[0] if near else None

    def _other(self, matches: Callable[[JournalEntry], bool]) -> JournalEntry | None:
        before = [one for one in self._others if one.at_s <= self._at_s and matches(one)]
        return before[-1] if before else None

    def _request_text(self, other: JournalEntry) -> str:
        client = other.view.request.client_id or "a client"
        return f"{other.api} of {client} (exchange {other.number}), {self._since(other.at_s)}"

    def _when(self, event: ClusterEvent) -> str:
        return self._since(event.at_s)

    def _since(self, at_s: float) -> str:
        return f"{_ms(self._at_s - at_s)} before" if at_s <= self._at_s else f"{_ms(at_s - self._at_s)} after"


class _InferredEvent:
    """An event that is inferred from responses."""

    def __init__(self, at_s: float, kind: str, detail: Mapping[str, Any]) -> None:
        self.at_s = at_s
        self.kind = kind
        self.detail = detail


def _disturbance(event: ClusterEvent) -> str:
    return DISTURBANCES[event.kind].format(**event.detail) + ","


def _resize(event: ClusterEvent) -> str:
    detail = event.detail
    return f"{detail[TOPIC]} goes from {detail.get('from', '?')} to {detail.get('to', '?')} partitions ({event.kind})"


def _removal(event: ClusterEvent) -> str:
    return f"{event.detail[TOPIC]} was {'shrunk' if event.kind == 'partition removed' else 'deleted'}"


def _is_about_node(event: ClusterEvent, node_id: int) -> bool:
    return event.kind in DISTURBANCES and event.detail.get("node", event.detail.get("broker")) == node_id


def _place(row: Row) -> str:
    if TOPIC in row:
        return f"{row[TOPIC]}-{row[PARTITION]}" if PARTITION in row else str(row[TOPIC])
    named = (row.get(kind) for kind in (GROUP, TRANSACTIONAL_ID))
    return next((str(one) for one in named if one), "")


def _ms(span_s: float) -> str:
    return f"{span_s * 1000:.0f} ms" if span_s < 10 else f"{span_s:.0f} s"
