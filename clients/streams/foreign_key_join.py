"""The join of two tables by a foreign key: the value of a left row says which right row it is joined with.

Both tables are copied through topics of the application's own, left and right. So everything behind them has fixed
partition counts, and the inputs of both tables can be resized at any time, each alone.

    left task of a key           keeps the left row, and subscribes to its foreign key (topic `subscriptions`)
    right task of a foreign key  keeps the right row and the subscriptions to it; it responds to each subscription, and
                                 to all of them when the row changes (topic `responses`)
    left task of a key           joins its row with the response, unless that is for an older value of the row

The topics of a task have the same count: responses are as many as left, subscriptions as many as right.

Invariant: when everything is processed, the results are those of the last rows of both tables. The last value of a left
row is followed by a response with its hash, or by one that the left task gives itself: so every subscription that is
not ended is answered. Responses of one right task keep their order, and those of others are for other values. In Kafka
Streams a subscription without a right row may get no response. If the deletion of an earlier result was dropped as
outdated, that result then stays for ever. Here the subscription gets a response, which deletes the result if there is
one.

Pure; source: SubscriptionSendProcessorSupplier, SubscriptionReceiveProcessorSupplier,
SubscriptionJoinProcessorSupplier, ForeignTableJoinProcessorSupplier and ResponseJoinProcessorSupplier of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anabranch.clients.streams import table_steps
from anabranch.clients.streams.context import Context, Handler, forward_at
from anabranch.clients.streams.serdes import BYTES, Serde
from anabranch.clients.streams.subscription_wrapper import (
    RESPONSE,
    SUBSCRIPTION,
    Instruction,
    SubscriptionResponseWrapper,
    SubscriptionWrapper,
    combined_key,
    hash_of,
    prefix_of,
)
from anabranch.clients.streams.topology_graph import INTERNAL, Graph, Node

DELETE_KEY_NO_PROPAGATE = Instruction.DELETE_KEY_NO_PROPAGATE
DELETE_KEY_AND_PROPAGATE = Instruction.DELETE_KEY_AND_PROPAGATE
PROPAGATE_NULL = Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE
PROPAGATE_ONLY_IF = Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeyJoin:
    """What a join does: its functions, its store, and how values of both sides and of the results are encoded."""

    store: str
    foreign_key: Callable[[bytes, Any], bytes | None]
    joined: Callable[[Any, Any], Any]
    left: bool
    """Whether a left row has a result without a right one."""
    left_value: Serde
    right_value: Serde
    value: Serde

    def add(self, graph: Graph, left: Node, right: Node) -> Node:
        """Add the join of two tables to a graph, and return the step that makes the table of the results.

        Raises:
            ValueError: There is a join with this store.
        """
        left_topic, right_topic, subscriptions, responses = (
            f"{self.store}-{what}" for what in ("left", "right", "subscriptions", "responses")
        )
        if left_topic in graph.repartitions:
            raise ValueError(f"two joins have the store {self.store!r}: name another one for the results of each")
        lefts = graph.add_repartition(left, left_topic, _raw(self.left_value))
        rights = graph.add_repartition(right, right_topic, _raw(self.right_value))
        subscribed = graph.add_internal_topic(subscriptions, SUBSCRIPTION, as_wide_as=right_topic)
        answered = graph.add_internal_topic(responses, RESPONSE, as_wide_as=left_topic)
        both = (graph.add(rights, self._right()), graph.add(subscribed, self._subscriptions()))
        sink = graph.add_sink(both[0], INTERNAL + responses, RESPONSE)
        graph.add(both[1], sink)
        respond = graph.add(graph.add(lefts, self._left()), self._responses())
        graph.add(answered, respond)
        results = table_steps.source(self.store, self.value)
        results.label = f"join {self.store}"
        return graph.add(respond, results)

    # the names of its stores

    @property
    def _lefts(self) -> str:
        return f"{self.store}-left"

    @property
    def _rights(self) -> str:
        return f"{self.store}-right"

    @property
    def _subscribed(self) -> str:
        return f"{self.store}-subscriptions"

    # steps

    def _left(self) -> Node:
        """Return the step that keeps left rows and subscribes; it answers where no right row can."""
        topic, decode = INTERNAL + self._subscribed, self.left_value.decode

        def bind(context: Context, forward: Handler) -> Handler:
            kept = context.store(self._lefts)

            def put(key: bytes, raw: bytes | None) -> None:
                before = kept.get(key)
                kept.put(key, raw)
                if raw is None and before is None:
                    return
                new, old = (None if row is None else self._foreign_key(key, decode(row)) for row in (raw, before))
                hash_ = hash_of(raw)
                instructions = self._instructions(old, new)
                for foreign_key, instruction in instructions:
                    subscription = SubscriptionWrapper(hash_, instruction, key)
                    context.emit(topic, foreign_key, SUBSCRIPTION.encode(subscription))
                if not any(instruction is not DELETE_KEY_NO_PROPAGATE for _, instruction in instructions):
                    forward(key, SubscriptionResponseWrapper(hash_, None, only_if_result=not self.left))

            return put

        names = (self._lefts,)
        return Node(bind, label=f"left side of {self.store}, sink {self._subscribed}", stores=names, private=names)

    def _foreign_key(self, key: bytes, value: Any) -> bytes | None:
        found = self.foreign_key(key, value)
        if not isinstance(found, bytes | None):
            raise TypeError(f"foreign_key returns the key of a row as bytes, or None; it returned {found!r}")
        return found

    def _instructions(self, old: bytes | None, new: bytes | None) -> list[tuple[bytes, Instruction]]:
        """Return what is sent to which foreign keys when that of a left row changes; None is that of no right row."""
        if old is None:
            return [] if new is None else [(new, PROPAGATE_NULL if self.left else PROPAGATE_ONLY_IF)]
        if new is None:
            return [(old, DELETE_KEY_NO_PROPAGATE if self.left else DELETE_KEY_AND_PROPAGATE)]
        if new == old:
            return [(new, PROPAGATE_NULL if self.left else PROPAGATE_ONLY_IF)]
        return [(old, DELETE_KEY_NO_PROPAGATE), (new, PROPAGATE_NULL)]

    def _subscriptions(self) -> Node:
        """Return the step that keeps subscriptions, and responds to them."""

        def bind(context: Context, forward: Handler) -> Handler:
            kept, rows = context.store(self._subscribed), context.timestamped(self._rights)

            def subscribe(foreign_key: bytes, one: SubscriptionWrapper) -> None:
                ends = one.instruction in (DELETE_KEY_NO_PROPAGATE, DELETE_KEY_AND_PROPAGATE)
                kept.put(combined_key(foreign_key, one.key), None if ends else one.hash)
                if one.instruction is DELETE_KEY_NO_PROPAGATE:
                    return
                row, row_ms = rows.get_timestamped(foreign_key) or (None, -1)
                only_if = one.instruction is PROPAGATE_ONLY_IF
                response = SubscriptionResponseWrapper(one.hash, None if ends else row, only_if_result=only_if)
                forward_at(max(context.timestamp_ms, row_ms), context, forward, one.key, response)

            return subscribe

        names = (self._subscribed, self._rights)
        return Node(
            bind,
            label=f"subscriptions of {self.store}",
            stores=names,
            private=names,
            timestamped=(self._rights,),
            key_suffixes={self._subscribed: 0},  # not by the keys of records: it cannot be queried
        )

    def _right(self) -> Node:
        """Return the step that keeps right rows, and responds to all subscriptions when one changes."""

        def bind(context: Context, forward: Handler) -> Handler:
            rows, subscribed = context.timestamped(self._rights), context.store(self._subscribed)

            def put(foreign_key: bytes, raw: bytes | None) -> None:
                rows.put(foreign_key, raw, context.timestamp_ms)
                prefix = prefix_of(foreign_key)
                for key, hash_ in subscribed.prefix_scan(prefix):
                    forward(key.removeprefix(prefix), SubscriptionResponseWrapper(hash_, raw))

            return put

        names = (self._rights, self._subscribed)
        return Node(bind, label=f"right side of {self.store}", stores=names, joins=True)

    def _responses(self) -> Node:
        """Return the step that joins left rows with responses."""
        of_left, of_right = self.left_value.decode, self.right_value.decode

        def bind(context: Context, forward: Handler) -> Handler:
            rows, results = context.store(self._lefts), context.store(self.store)

            def respond(key: bytes, one: SubscriptionResponseWrapper) -> None:
                row = rows.get(key)
                if one.hash != hash_of(row):
                    return
                if row is not None and (one.row is not None or self.left):
                    forward(key, self.joined(of_left(row), None if one.row is None else of_right(one.row)))
                elif not one.only_if_result or results.get(key) is not None:
                    forward(key, None)

            return respond

        return Node(bind, label=f"responses of {self.store}", stores=(self._lefts, self.store), joins=True)


def _raw(value: Serde) -> Serde:
    """Return a serde that leaves values encoded behind the topic: they are stored, and compared by their hashes."""
    return Serde(value.encode, BYTES.decode)
