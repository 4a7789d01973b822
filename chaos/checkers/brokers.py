"""White-box checkers: the state in brokers and controllers against the actual state at that moment.

The invariants are those of the TLA+ specifications of Kafka's replication, and of KIP-903 and the controller's fence.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final

from anabranch.chaos.checkers.shared import Checker, at
from anabranch.chaos.history import History, Place, ZnodeWritten
from anabranch.controller.zk import paths


def c1_leader_in_isr(history: History) -> Iterator[str]:
    """A committed state whose leader is not in its ISR."""
    for state in history.states:
        if state.leader >= 0 and state.leader not in state.isr:
            yield f"{state.place} epoch {state.leader_epoch}: leader {state.leader}, isr {list(state.isr)}"


def c2_strong_isr(history: History) -> Iterator[str]:
    """A leader's high watermark above the log of a member of its ISR."""
    for move in history.high_watermarks:
        if move.leads:
            for member, end in move.ends.items():
                if 0 <= end < move.after:
                    yield (
                        f"{move.place} epoch {move.leader_epoch}: leader {move.node} moves its high watermark from "
                        f"{move.before} to {move.after}, and {member} ends at {end}"
                    )


def c5_high_watermark_back(history: History) -> Iterator[str]:
    """A replica's high watermark decreases, or its log is truncated below it."""
    for move in history.high_watermarks:
        if move.after < move.before:
            yield f"{move.place} on {move.node}: from {move.before} to {move.after} in epoch {move.leader_epoch}"
    for cut in history.truncations:
        if cut.offset < cut.high_watermark:
            yield f"{cut.place} on {cut.node}: cut to {cut.offset}, below its high watermark {cut.high_watermark}"


def c6_epochs(history: History) -> Iterator[str]:
    """Leader epochs do not rise with the zxid, or two brokers lead in one epoch."""
    last: dict[tuple[Place, str], tuple[int, int]] = {}
    leaders: dict[tuple[Place, str, int], int] = {}
    for state in history.states:
        partition = (state.place, state.topic_id)
        epoch, leader = last.get(partition, (-1, -1))
        if state.leader_epoch < epoch or (state.leader_epoch == epoch and state.leader != leader):
            yield f"{state.place}: {leader} in epoch {epoch}, then {state.leader} in epoch {state.leader_epoch}"
        last[partition] = (state.leader_epoch, state.leader)
    for one in history.led:
        first = leaders.setdefault((one.place, one.topic_id, one.leader_epoch), one.node)
        if first != one.node:
            yield f"{one.place}: {first} and {one.node} lead in epoch {one.leader_epoch}"


def c7_epoch_lineage(history: History) -> Iterator[str]:
    """Replicas disagree on the leader epochs of records below the high watermark.

    Truncation uses their epoch caches, so a wrong cache does its harm later, at the next divergence.
    """
    for place, caches in history.epoch_caches.items():
        known = sorted(caches.items())
        for node, epochs in known[1:]:
            if epochs != known[0][1]:
                yield f"{place}: epochs begin at {known[0][1]} on {known[0][0]}, at {epochs} on {node}"


def c8_early_join(history: History) -> Iterator[str]:
    """An ISR accepted with a member that has not reached the high watermark."""
    for one in history.proposals:
        for member in one.isr:
            if 0 <= one.ends.get(member, -1) < one.high_watermark:
                yield f"{one.place}: {member} is in sync with {one.ends[member]} of {one.high_watermark} records"


def c9_unfit_isr(history: History) -> Iterator[str]:
    """An ISR committed with a member of another broker epoch than the registered one (KIP-903)."""
    for one in history.proposals:
        for member in one.isr:
            named, registered = one.named.get(member, -1), one.registered.get(member)
            if registered is None or (named >= 0 and named != registered):
                yield f"{one.place}: {member} joins with epoch {named}, registered is {registered}"


def c10_isr_changes(history: History) -> Iterator[str]:
    """A leader has two ISR requests of a partition open at once, or applies a response that is older than its state."""
    open_until: dict[tuple[Place, int, int], int | None] = {}
    for one in history.isr_requests:
        partition = (one.place, one.node, one.life)
        until = open_until.get(partition, 0)
        if until is None or until > one.order:
            yield f"{one.place}: {one.node} asks for an ISR, and has no answer yet to what it asked before"
        open_until[partition] = one.response_order if one.response_order >= 0 else None
    for answer in history.isrs_answered:
        known, granted = answer.before, answer.granted
        stale = granted.leader_epoch != known.leader_epoch or granted.partition_epoch < known.partition_epoch
        if stale and answer.after != known:
            yield f"{answer.place}: {answer.node} knows {known}, and takes up {answer.after} from {granted}"


def c11_stale_controller(history: History) -> Iterator[str]:
    """A controller's znode written by a session that was not the active controller, or a state with an older controller
    epoch. Only the active controller changes a topic, its partitions or finalized features, claims producer ids, or
    completes a deletion. Brokers and tools may create topics, request deletions, and change configurations. A session
    deletes no /controller but its own.
    """
    terms = sorted((one.order, one.session_id, one.epoch) for one in history.epochs)
    orders = [order for order, _, _ in terms]

    def in_office(order: int) -> tuple[int | None, int]:
        current = bisect_left(orders, order) - 1
        return terms[current][1:] if current >= 0 else (None, 0)

    last: dict[Place, int] = {}
    for state in history.states:
        session, epoch = in_office(state.order)
        if state.session_id != session:
            yield f"{state.place}: written by session {state.session_id}, in office was {session}"
        elif state.controller_epoch != epoch:
            yield f"{state.place}: carries controller epoch {state.controller_epoch}, it is {epoch}"
        if state.controller_epoch < last.get(state.place, 0):
            yield f"{state.place}: controller epoch {state.controller_epoch} after {last[state.place]}"
        last[state.place] = max(last.get(state.place, 0), state.controller_epoch)
    owner: int | None = None
    for written in history.znodes:
        if written.path == paths.CONTROLLER and written.kind == "created":
            owner = written.session_id
            continue
        session = owner if written.path == paths.CONTROLLER else in_office(written.order)[0]
        if written.session_id != session and _reserved(written):
            what = f"{written.path}, zxid {written.zxid}: {written.kind}"
            yield f"{what} by session {written.session_id}, in office was {session}"


def _reserved(written: ZnodeWritten) -> bool:
    """Whether only the active controller may do this."""
    if written.path == paths.CONTROLLER:
        return written.session_id != 0  # an operator requests an election, or the session has ended
    parent = paths.parent(written.path)
    if parent in (paths.TOPICS, paths.DELETE_TOPICS, paths.TOPIC_CONFIGS):
        return written.kind == "deleted" or (parent == paths.TOPICS and written.kind == "changed")
    if written.path == paths.LATEST_PRODUCER_ID_BLOCK:
        return written.kind != "created"  # every starting node creates it if it is missing
    return True


def c12_stale_request(history: History) -> Iterator[str]:
    """A broker accepts a request of a replaced controller, or one for an earlier broker epoch; or it leads twice in one
    epoch.
    """
    highest: dict[tuple[int, int], int] = {}
    for one in history.admitted:
        known = highest.get((one.node, one.life), -1)
        if one.controller_epoch < known:
            yield f"{one.node} lets in controller epoch {one.controller_epoch} after {known}"
        if -1 < one.broker_epoch < one.own_epoch:
            yield f"{one.node} lets in a request to broker epoch {one.broker_epoch}, it has {one.own_epoch}"
        highest[one.node, one.life] = max(known, one.controller_epoch)
    newest: dict[tuple[int, int, Place, str], int] = {}
    for led in history.led:
        office = (led.node, led.life, led.place, led.topic_id)
        if led.leader_epoch <= newest.get(office, -1):
            yield f"{led.place}: {led.node} begins to lead in epoch {led.leader_epoch} again"
        newest[office] = max(led.leader_epoch, newest.get(office, -1))


def c13_unsafe_ack(history: History) -> Iterator[str]:
    """Acks=all answered while a member of the ISR lacked the record, or the ISR was too small."""
    for ack in history.acks:
        if len(ack.isr) < ack.min_isr:
            yield f"{ack.place}: {ack.node} acknowledges {ack.end_offset} with isr {list(ack.isr)}, wants {ack.min_isr}"
        for member in ack.isr:
            if 0 <= ack.ends.get(member, -1) < ack.end_offset:
                yield f"{ack.place}: {ack.node} acknowledges {ack.end_offset}, and {member} ends at {ack.ends[member]}"


def c14_delivered_unsafe(history: History) -> Iterator[str]:
    """Delivered at or above any high watermark that a leader ever had."""
    reached: dict[Place, int] = {}
    moves = iter(sorted(history.high_watermarks, key=lambda one: one.order))
    move = next(moves, None)
    for delivery in history.deliveries:
        while move is not None and move.order < delivery.order:
            reached[move.place] = max(reached.get(move.place, 0), move.after)
            move = next(moves, None)
        if delivery.offset >= reached.get(delivery.place, 0):
            high = reached.get(delivery.place, 0)
            yield f"{delivery.value} at {at(delivery.place, delivery.offset)}, high watermark at most {high}"


def c15_epoch_of_generation(history: History) -> Iterator[str]:
    """The generation of a partition changes, or it is sealed, without a new leader epoch."""
    serves: dict[tuple[Place, str, int], tuple[int, bool]] = {}
    for state in history.states:
        now = (state.generation, state.sealed)
        before = serves.setdefault((state.place, state.topic_id, state.leader_epoch), now)
        if before != now:
            yield f"{state.place} epoch {state.leader_epoch}: generation and seal are {before}, then {now}"


def c16_replicas_differ(history: History) -> Iterator[str]:
    """Replicas that are not byte for byte equal up to the high watermark."""
    for place, replicas in history.replicas.items():
        contents = sorted(replicas.items())
        for node, content in contents[1:]:
            if content != contents[0][1]:
                yield f"{place}: {len(contents[0][1])} bytes on {contents[0][0]}, {len(content)} others on {node}"


def c19_stray_replica(history: History) -> Iterator[str]:
    """A live broker still has a replica of a deleted topic, or of a partition that was removed or moved to others."""
    for one in history.strays:
        yield f"{one.place} of topic {one.topic_id} is on {one.node}, and {one.why}"


def c20_deleted_unasked(history: History) -> Iterator[str]:
    """A topic is removed that was not marked for deletion, or a request marks a second topic of the name."""
    rows: list[tuple[int, str, str]] = [(one.order, "requested", one.topic) for one in history.deletions]
    kinds = {paths.TOPICS: "topic", paths.DELETE_TOPICS: "mark"}
    for one in history.znodes:
        if one.session_id and (kind := kinds.get(paths.parent(one.path))):
            rows.append((one.order, f"{kind} {one.kind}", paths.name(one.path)))
    requests, marks = Counter[str](), Counter[str]()
    marked: dict[str, bool] = {}
    to_go: set[str] = set()
    for _, what, topic in sorted(rows):
        if what == "requested":
            requests[topic] += 1
        elif what == "mark created":
            marks[topic] += 1
            marked[topic] = True
            to_go.add(topic)
            if marks[topic] > requests[topic]:
                yield f"{topic} is marked for deletion {marks[topic]} times, and {requests[topic]} requests named it"
        elif what == "mark deleted":
            marked[topic] = False
        elif what == "topic created":
            (to_go.add if marked.get(topic) else to_go.discard)(topic)
        elif what == "topic deleted" and topic not in to_go:
            yield f"{topic} is removed, and nobody has asked for that"


CHECKERS: Final[dict[str, Checker]] = {
    "C1 leader-in-isr": c1_leader_in_isr,
    "C2 strong-isr": c2_strong_isr,
    "C5 high-watermark-back": c5_high_watermark_back,
    "C6 epochs": c6_epochs,
    "C7 epoch-lineage": c7_epoch_lineage,
    "C8 early-join": c8_early_join,
    "C9 unfit-isr": c9_unfit_isr,
    "C10 isr-changes": c10_isr_changes,
    "C11 stale-controller": c11_stale_controller,
    "C12 stale-request": c12_stale_request,
    "C13 unsafe-ack": c13_unsafe_ack,
    "C14 delivered-unsafe": c14_delivered_unsafe,
    "C15 epoch-of-generation": c15_epoch_of_generation,
    "C16 replicas-differ": c16_replicas_differ,
    "C19 stray-replica": c19_stray_replica,
    "C20 deleted-unasked": c20_deleted_unasked,
}
