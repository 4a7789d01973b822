"""Checks transactions and their groups: atomicity, and exactly-once copies.

The workload is a copier: it reads committed records, writes one copy of each in a transaction with its offsets, and
commits or aborts. The log decides a transaction's outcome: the first marker of its producer behind a record decides it.
Definitions A14 to A16 are those of Jepsen's Kafka workload.

Kafka's transactions before KIP-890 may tear when a delayed request meets the next transaction of the same epoch. Our
clients raise the epoch after every lost request, and leaders verify; so here it is a violation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from anabranch.chaos.checkers.shared import Checker, at, reset_events
from anabranch.chaos.history import History, OffsetsFetched, OffsetsReset, Place
from anabranch.chaos.transaction_events import Transaction


def a14_circular_reads(history: History) -> Iterator[str]:
    """Transactions read one another's records in a cycle (G1c, write-read edges only)."""
    writer = _writers(history)
    readers: dict[str, set[str]] = defaultdict(set)
    sources: Counter[str] = Counter()
    for read in history.committed_reads:
        wrote = writer.get(read.value)
        if read.transaction and wrote is not None and read.transaction not in (wrote.name, *readers[wrote.name]):
            readers[wrote.name].add(read.transaction)
            sources[read.transaction] += 1
    free = [name for name in readers if not sources[name]]
    for name in free:
        for reader in readers[name]:
            sources[reader] -= 1
            if not sources[reader]:
                free.append(reader)
    left = sorted(name for name, count in sources.items() if count)
    if left:
        yield f"among {left[:10]}"


def a15_precommitted_read(history: History) -> Iterator[str]:
    """A transaction reads a record that it wrote itself."""
    writer = _writers(history)
    for read in history.committed_reads:
        wrote = writer.get(read.value)
        if wrote is not None and wrote.name == read.transaction:
            yield f"{read.value} at {at(read.place, read.offset)} in {wrote.name}"


def a16_torn_transaction(history: History) -> Iterator[str]:
    """Some records of a transaction are committed and others are not, or it was committed and some are missing."""
    decided = decisions(history)
    for one in history.transactions:
        fates = Counter(decided.get(copy.value) for copy in one.copies)
        promised = one.requested_end == "commit" and one.outcome == "ok"
        if fates[True] < len(one.copies) and (fates[True] or promised):
            yield (
                f"{one.name}: {fates[True]} of {len(one.copies)} records committed, {fates[False]} aborted, "
                f"{fates[None]} neither; asked to {one.requested_end or 'do nothing'} ({one.outcome})"
            )


def a27_aborted_read(history: History) -> Iterator[str]:
    """A read_committed consumer gets a record of an aborted transaction, or one that is in no log (G1a)."""
    decided = decisions(history)
    transactions = _writers(history)
    for read in history.committed_reads:
        one = transactions.get(read.value)
        if one is not None and (one.requested_end == "abort" or not decided.get(read.value)):
            yield f"{read.value} of {one.name} at {at(read.place, read.offset)} is given to {read.reader}"


def a28_uncommitted_read(history: History) -> Iterator[str]:
    """A read_committed consumer gets a record before its producer sent the commit."""
    transactions = _writers(history)
    for read in history.committed_reads:
        one = transactions.get(read.value)
        if one is not None and one.name != read.transaction and not 0 <= one.end_order < read.order:
            yield f"{read.value} of {one.name} at {at(read.place, read.offset)} is given to {read.reader}"


def a29_exactly_once_copy(history: History) -> Iterator[str]:
    """A record has no committed copy, or more than one."""
    if not history.transactions:
        return
    decided = decisions(history)
    copies = [copy for one in history.transactions for copy in one.copies if decided.get(copy.value)]
    times = Counter(copy.source for copy in copies)
    expected = {record.value for record in history.stored if record.place[0] not in history.unread}
    expected |= {copy.value for copy in copies if not copy.final}
    for source in sorted(expected | times.keys()):
        if times[source] != 1:
            yield f"{source} is copied {times[source]} times"


def a30_offset_goes_back(history: History) -> Iterator[str]:
    """A group's committed offset decreases, from one response to a later request, without a reset."""
    known: dict[tuple[str, Place], tuple[int, int]] = {}
    events: list[tuple[int, int, OffsetsFetched | OffsetsReset]] = []
    events += [(one.response_order, 0, one) for one in history.fetched]
    events += [(one.order, 1, one) for one in history.fetched]
    events += [(order, 2, one) for order, one in reset_events(history)]
    started: dict[int, dict[tuple[str, Place], tuple[int, int]]] = {}
    for order, is_request, one in sorted(events, key=lambda event: event[:2]):
        for place, offset in one.offsets.items():
            key = (one.group, place)
            if isinstance(one, OffsetsReset):
                known.pop(key, None)
                for offsets in started.values():  # a request at that moment may return either
                    offsets.pop(key, None)
                continue
            if is_request:
                if key in known:
                    started.setdefault(id(one), {})[key] = known[key]
                continue
            before, when = started.get(id(one), {}).get(key, (-1, -1))
            if offset < before:
                yield f"{one.group}, {at(place, offset)} at {order}, and {before} was told at {when}"
            if offset > known.get(key, (-1, -1))[0]:
                known[key] = (offset, order)


def a31_offsets_lost(history: History) -> Iterator[str]:
    """A group gets a lower offset than the one acknowledged as committed before the request."""
    done = [
        (one.ended_order, place, offset)
        for one in history.transactions
        if one.requested_end == "commit" and one.outcome == "ok"
        for place, offset in one.offsets.items()
    ]
    done = sorted(done + _own_commits(history), reverse=True)
    acked: dict[Place, int] = {}
    for one in sorted(_copiers_questions(history), key=lambda row: row.order):
        while done and done[-1][0] < one.order:
            _, place, offset = done.pop()
            acked[place] = max(offset, acked.get(place, -1))
        for place, offset in one.offsets.items():
            if offset < acked.get(place, -1):
                yield f"{one.group}, {at(place, offset)}: {acked[place]} was committed"


def a32_offsets_too_early(history: History) -> Iterator[str]:
    """A group gets an offset before a member sent its commit."""
    first_requested: dict[tuple[Place, int], int] = {}
    for one in history.transactions:
        if one.requested_end == "commit":
            for row in one.offsets.items():
                first_requested[row] = min(one.end_order, first_requested.get(row, one.end_order))
    for commit in history.copiers_commits:
        for row in commit.offsets.items():
            first_requested[row] = min(commit.order, first_requested.get(row, commit.order))
    for question in _copiers_questions(history):
        for place, offset in question.offsets.items():
            if (
                offset >= 0
                and first_requested.get((place, offset), question.response_order + 1) > question.response_order
            ):
                yield f"{question.group} is told {at(place, offset)}"


def a33_copies_out_of_order(history: History) -> Iterator[str]:
    """Committed copies of one producer's records of one key are in another order than the records.

    Only first copies count: the key's owner at the time makes them, across resizes of the source. If the target is
    resized too, only copies in the same partition are compared.
    """
    decided = decisions(history)
    sent = {send.value: (send.producer, send.key, send.sequence) for send in history.sends}
    copies = {copy.value: copy for one in history.transactions for copy in one.copies}
    last: dict[tuple[Place, str, str], int] = {}
    for record in sorted(history.copied, key=lambda one: (one.place, one.offset)):
        copy = copies.get(record.value)
        if copy is None or copy.source not in sent or not decided.get(record.value):
            continue
        producer, key, sequence = sent[copy.source]
        before = last.get((record.place, producer, key), -1)
        if sequence < before:
            yield f"{copy.source} at {at(record.place, record.offset)} stands behind number {before} of its key"
        last[record.place, producer, key] = max(sequence, before)


def a34_zombie_producer(history: History) -> Iterator[str]:
    """A producer commits, or adds offsets, after another one took over its transactional id."""
    initialized: dict[str, list[tuple[int, str, int]]] = defaultdict(list)
    for one in history.producers:
        initialized[one.transactional_id].append((one.order, one.producer, one.producer_epoch))
    for transaction in history.transactions:
        own = next((row for row in initialized[transaction.transactional_id] if row[1] == transaction.producer), None)
        if own is None:
            continue
        # A producer that was stopped before it read the response begins late; its epoch shows that it is the earlier
        # one.
        successors = [row for row in initialized[transaction.transactional_id] if row[0] > own[0] and row[2] >= own[2]]
        did = []
        if transaction.outcome == "ok" and transaction.requested_end == "commit" and transaction.copies:
            did.append((transaction.end_order, "commits"))
        if transaction.offsets_accepted:
            did.append((transaction.offsets_order, "adds offsets"))
        for order, what in did:
            for since, successor, _ in successors:
                if since < order:
                    yield f"{transaction.producer} {what} in {transaction.name}, when {successor} had begun"


def a35_stale_marker(history: History) -> Iterator[str]:
    """A marker of an older coordinator, or of an older producer epoch, follows a newer one."""
    last: dict[tuple[Place, int], tuple[int, int]] = {}
    for one in sorted(history.markers, key=lambda row: (row.place, row.offset)):
        coordinator, epoch = last.get((one.place, one.producer_id), (-1, -1))
        if one.coordinator_epoch < coordinator or one.producer_epoch < epoch:
            yield (
                f"{at(one.place, one.offset)}: coordinator epoch {one.coordinator_epoch}, producer epoch "
                f"{one.producer_epoch}; before it {coordinator} and {epoch}"
            )
        last[one.place, one.producer_id] = (one.coordinator_epoch, one.producer_epoch)


def a36_two_owners(history: History) -> Iterator[str]:
    """Two members of a group get one partition in one generation; successors of a static member are one."""
    owners: dict[tuple[str, int, Place], str] = {}
    instances = tuple(f"{instance}-" for instance in history.instances.values())
    for one in history.assigned:
        for place in one.places:
            member = next((name for name in instances if one.member.startswith(name)), one.member)
            owner = owners.setdefault((one.group, one.generation, place), member)
            if owner != member:
                yield f"{place} in generation {one.generation} of {one.group} belongs to {owner} and {member}"


def a37_zombie_offsets(history: History) -> Iterator[str]:
    """Offsets of an old generation are accepted for a transaction after a newer generation was assigned."""
    given = sorted((one.order, one.generation) for one in history.assigned if one.group == COPIERS)
    newest = list(accumulate((generation for _, generation in given), max))
    for one in history.transactions:
        before = bisect_left(given, (one.offsets_order, -1)) - 1
        if one.offsets_accepted and before >= 0 and one.group_generation < newest[before]:
            yield f"{one.name} in generation {one.group_generation}, when {newest[before]} had begun"


def a38_committed_skip(history: History) -> Iterator[str]:
    """A read_committed consumer skips a committed record."""
    decided = decisions(history)
    offsets: dict[Place, list[int]] = defaultdict(list)
    for record in sorted(history.copied, key=lambda one: (one.place, one.offset)):
        if decided.get(record.value):
            offsets[record.place].append(record.offset)
    number = {place: {offset: n for n, offset in enumerate(rows)} for place, rows in offsets.items()}
    last: dict[tuple[str, int, Place], int] = {}
    for read in history.committed_reads:
        at_index = number.get(read.place, {}).get(read.offset)
        if at_index is None:
            continue
        run = (read.reader, read.run, read.place)
        if run in last and at_index > last[run] + 1:
            yield f"{read.reader} jumps to {at(read.place, read.offset)} over {offsets[read.place][last[run] + 1]}"
        last[run] = at_index


def decisions(history: History) -> dict[str, bool]:
    """Return whether each record of a transaction is committed, by the first marker of its producer behind it."""
    decided: dict[str, bool] = {}
    undecided: dict[tuple[Place, int], list[str]] = defaultdict(list)
    rows = [(one.place, one.offset, one.producer_id, one.value, False) for one in history.copied]
    rows += [(one.place, one.offset, one.producer_id, "", one.commit) for one in history.markers]
    for place, _, producer_id, value, commit in sorted(rows):
        if value:
            undecided[place, producer_id].append(value)
        else:
            decided.update(dict.fromkeys(undecided.pop((place, producer_id), ()), commit))
    return decided


def _writers(history: History) -> dict[str, Transaction]:
    return {copy.value: one for one in history.transactions for copy in one.copies}


def _own_commits(history: History) -> list[tuple[int, Place, int]]:
    return [
        (one.acked_order, place, offset)
        for one in history.copiers_commits
        if one.outcome == "ok"
        for place, offset in one.offsets.items()
    ]


def _copiers_questions(history: History) -> list[OffsetsFetched]:
    return [one for one in history.fetched if one.group == COPIERS]


COPIERS: Final = "copiers"
"""The group whose offsets are committed in transactions."""

CHECKERS: Final[dict[str, Checker]] = {
    "A14 circular-reads": a14_circular_reads,
    "A15 precommitted-read": a15_precommitted_read,
    "A16 torn-transaction": a16_torn_transaction,
    "A27 aborted-read-committed": a27_aborted_read,
    "A28 uncommitted-read": a28_uncommitted_read,
    "A29 exactly-once-copy": a29_exactly_once_copy,
    "A30 offset-goes-back": a30_offset_goes_back,
    "A31 offsets-lost": a31_offsets_lost,
    "A32 offsets-too-early": a32_offsets_too_early,
    "A33 copies-out-of-order": a33_copies_out_of_order,
    "A34 zombie-producer": a34_zombie_producer,
    "A35 stale-marker": a35_stale_marker,
    "A36 two-owners": a36_two_owners,
    "A37 zombie-offsets": a37_zombie_offsets,
    "A38 committed-skip": a38_committed_skip,
}
