"""Compares what members of a share group received and acknowledged (KIP-932): one holder and one final state each.

A leader's locks are not stored, so a record that a member holds may go to another one after a change of leaders. A
later leader may not forget a record's stored state; a deposed leader may not know it. Clients do not see which leader
sent a record, so checkers of clients alone (A41 to A43) allow another leader some time to learn of its final state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from anabranch.chaos.checkers.shared import Checker, at
from anabranch.chaos.history import History, Place
from anabranch.chaos.share_events import Judged, LetGo, Locked

DEPOSED_S: Final = 30.0
"""How long a deposed leader may not know its successor; no injected fault lasts longer."""
Offset = tuple[Place, int]


def a41_unshared(history: History) -> Iterator[str]:
    """Acknowledged to its producer, and done although no member accepted or rejected it and its delivery limit was not
    reached.
    """
    shares = history.shares
    ended = {(one.place, one.offset) for one in shares.judged if one.verdict != "release" and one.outcome != "fail"}
    ended |= {(one.place, one.offset) for one in shares.handed if one.count >= shares.delivery_limit}
    ended |= {
        (one.place, one.offset)
        for one in shares.inside
        if isinstance(one, Locked) and one.count >= shares.delivery_limit
    }
    for send in history.sends:
        if send.outcome != "ok" or send.place is None or send.place[0] not in shares.topics:
            continue
        if (send.place, send.offset) not in ended and not history.deleted(send.place, send.offset):
            yield f"{send.value} at {at(send.place, send.offset)} was not accepted, rejected or delivered to the limit"


def a42_accepted_again(history: History) -> Iterator[str]:
    """Delivered by a request that was sent after a member had learned that the record's acceptance is stored."""
    accepted: dict[Offset, list[Judged]] = defaultdict(list)
    for one in history.shares.judged:
        if one.verdict == "accept" and one.outcome == "ok":
            accepted[one.place, one.offset].append(one)
    for handed in history.shares.handed:
        for one in accepted.get((handed.place, handed.offset), ()):
            same = handed.node == one.node and handed.request_order > one.acked_order
            if same or handed.requested_s > one.acked_s + DEPOSED_S:
                yield f"{at(handed.place, handed.offset)}: handed to {handed.member}, accepted by {one.member} before"
                break


def a43_too_often(history: History) -> Iterator[str]:
    """Delivered more often than the group's limit, by the delivery count that its members received."""
    limit = history.shares.delivery_limit
    for one in history.shares.handed:
        if not 1 <= one.count <= limit:
            yield f"{at(one.place, one.offset)}: delivery {one.count} of {limit} to {one.member}"


def a44_two_holders(history: History) -> Iterator[str]:
    """A leader gives a record to a member while another one holds it."""
    holders: dict[tuple[str, Place, int], dict[int, Locked]] = defaultdict(dict)
    """(leader, partition, leader epoch) -> offset -> its holder."""
    for event in history.shares.inside:
        if isinstance(event, LetGo):
            for held in holders.values():
                for offset in [
                    at_ for at_, one in held.items() if (one.leader, one.member) == (event.leader, event.member)
                ]:
                    del held[offset]
            continue
        held = holders[event.leader, event.place, event.leader_epoch]
        if isinstance(event, Locked):
            before = held.get(event.offset)
            if before is not None:
                yield f"{at(event.place, event.offset)}: to {event.member} while {before.member} holds it"
            held[event.offset] = event
        else:
            for offset in [one for one in held if event.first <= one <= event.last]:
                del held[offset]


def a45_fate_undone(history: History) -> Iterator[str]:
    """Delivered although its final state was stored, by that leader or a later one."""
    done: dict[Offset, int] = {}
    """Record -> the earliest leader epoch in which its final state was stored."""
    for event in history.shares.inside:
        if isinstance(event, Locked):
            epoch = done.get((event.place, event.offset))
            if epoch is not None and event.leader_epoch >= epoch:
                where = at(event.place, event.offset)
                yield f"{where}: to {event.member} in epoch {event.leader_epoch}, ended in {epoch}"
        elif not isinstance(event, LetGo) and event.done:
            for offset in range(event.first, event.last + 1):
                known = done.get((event.place, offset), event.leader_epoch)
                done[event.place, offset] = min(known, event.leader_epoch)


def a46_count(history: History) -> Iterator[str]:
    """A delivery count does not continue from the stored one, or includes a delivery that did not happen."""
    stored: dict[Offset, list[tuple[int, int]]] = defaultdict(list)
    highest: dict[Offset, int] = {}
    for event in history.shares.inside:
        if isinstance(event, Locked):
            where = event.place, event.offset
            least = max((count for epoch, count in stored[where] if epoch <= event.leader_epoch), default=0)
            most = highest.get(where, 0)
            if not least < event.count <= most + 1:
                yield f"{at(*where)}: delivery {event.count}; {least} were stored, {most} is the highest that there was"
            highest[where] = max(most, event.count)
        elif not isinstance(event, LetGo):
            for offset in range(event.first, event.last + 1):
                stored[event.place, offset].append((event.leader_epoch, event.count))


def a47_start_back(history: History) -> Iterator[str]:
    """The start offset of a group in a partition decreases.

    It is compared as stored by the same or newer coordinators, and as received by the same or newer leaders.
    """
    highest: dict[Place, dict[tuple[int, int], int]] = defaultdict(dict)
    """Partition -> epochs of a leader and a coordinator -> the highest start that they have stored."""
    for one in history.shares.starts:
        stored, keeper = highest[one.place], one.keeper_epoch
        before = max(
            (
                start
                for (leader_epoch, keeper_epoch), start in stored.items()
                if (leader_epoch <= one.leader_epoch if keeper is None else keeper_epoch <= keeper)
            ),
            default=-1,
        )
        if one.start < before:
            yield f"{one.place[0]}-{one.place[1]}: {'told' if keeper is None else 'stored'} {one.start} after {before}"
        if keeper is not None:
            epochs = one.leader_epoch, keeper
            stored[epochs] = max(one.start, stored.get(epochs, -1))


CHECKERS: Final[dict[str, Checker]] = {
    "A41 unshared": a41_unshared,
    "A42 accepted-again": a42_accepted_again,
    "A43 too-often": a43_too_often,
    "A44 two-holders": a44_two_holders,
    "A45 fate-undone": a45_fate_undone,
    "A46 delivery-count": a46_count,
    "A47 start-goes-back": a47_start_back,
}
