"""A second opinion of a run: the judge's verdict on the same history. It shares no code with the checkers.

The judge gets what clients and logs say: acknowledged sends, stored records with their leader epochs, and deliveries
with the generations of their members. Only the conversion is here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from anabranch.chaos.checkers.shared import was_removed_unread
from anabranch.chaos.history import Delivery, History, Place, Send
from anabranch.judge import records
from anabranch.judge.delivered_order import DeliveryOrder
from anabranch.judge.stored_order import judge_stored
from anabranch.judge.verdict import Verdict

PREFIX = "judge: "


def judge_again(history: History) -> list[str]:
    """Return every violation that the judge finds, topic by topic; none if the run was not completed."""
    if not history.complete:
        return []
    topics = {one.place[0] for one in history.stored} | {one.place[0] for one in history.deliveries}
    return [f"{PREFIX}{topic}: {one}" for topic in sorted(topics) for one in judge_topic(history, topic).violations]


def judge_topic(history: History, topic: str) -> Verdict:
    """Judge a topic's logs, and the deliveries to the group of the history if a group reads the topic."""
    verdict = Verdict()
    numbered = {one.value: one for one in history.sends if one.ordered}
    acknowledged = [_acknowledged(one) for one in _acknowledged_in(history, topic)]
    kept = [one for one in acknowledged if not history.deleted((topic, one.partition), one.offset)]
    stored = judge_stored(
        verdict,
        _stored(history, topic, numbered),
        counts=_counts(history, topic),
        sent=kept,
        starts=dict.fromkeys((one.partition for one in acknowledged), 0),
    )
    if topic not in history.unread:
        readable = {
            stream: [one for one in rows if not _deleted_unread(history, topic, one)] for stream, rows in stored.items()
        }
        order = DeliveryOrder(verdict, readable)
        order.follow(_delivered(history, topic, numbered))
        order.end(one for one in acknowledged if not _deleted_unread(history, topic, one))
    return verdict


def judge_members(group: str, topic: str, sends: Iterable[Send], deliveries: Iterable[Delivery]) -> list[str]:
    """Return the judge's violations in the deliveries of a group of other clients, which note no generations.

    Every acknowledged one of `sends` must be among the deliveries.
    """
    verdict = Verdict()
    history = History(sends=list(sends), deliveries=list(deliveries))
    order = DeliveryOrder(verdict, None)
    order.follow(_delivered(history, topic, {one.value: one for one in history.sends}))
    order.end(map(_acknowledged, _acknowledged_in(history, topic)))
    return [f"{PREFIX}{group}: {one}" for one in verdict.violations]


def _counts(history: History, topic: str) -> list[int]:
    lineage = history.lineage(topic)
    return [] if lineage is None else [count for _, count in lineage.history]


def _acknowledged_in(history: History, topic: str) -> Iterator[Send]:
    for one in history.sends:
        if one.outcome == "ok" and one.ordered and one.place is not None and one.place[0] == topic:
            yield one


def _acknowledged(send: Send) -> records.Delivery:
    assert send.place is not None
    key = send.key.encode()
    return records.Delivery(send.place[1], send.offset, key, send.sequence, producer=send.producer)


def _stored(history: History, topic: str, numbered: dict[str, Send]) -> Iterator[records.StoredRecord]:
    for one in history.stored:
        send = numbered.get(one.value)
        if one.place[0] == topic and send is not None:
            yield records.StoredRecord(
                one.place[1], one.offset, one.key.encode(), send.sequence, send.producer, one.leader_epoch
            )


def _delivered(history: History, topic: str, numbered: dict[str, Send]) -> Iterator[records.Delivery]:
    """Records that were deleted with their partition before groups had read them have lost their order (K705)."""
    losses = sorted(
        (loss for loss in history.callbacks if loss.kind == "lost"), key=lambda loss: loss.order, reverse=True
    )
    assignments: Counter[tuple[str, Place]] = Counter()
    for one in history.deliveries:
        while losses and losses[-1].order < one.order:
            loss = losses.pop()
            assignments.update((loss.consumer, place) for place in loss.places)
        send = numbered.get(one.value)
        if one.place[0] == topic and send is not None and not was_removed_unread(history, one):
            yield records.Delivery(
                one.place[1],
                one.offset,
                one.key.encode(),
                send.sequence,
                one.consumer,
                one.group_generation,
                send.producer,
                assignments[one.consumer, one.place],
            )


def _deleted_unread(history: History, topic: str, one: records.StoredRecord | records.Delivery) -> bool:
    return one.offset < history.deleted_unread.get((topic, one.partition), 0)
