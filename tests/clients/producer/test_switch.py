"""No schedule of resizes, faults and old metadata breaks key order, or loses or duplicates a record.

Method: thousands of random schedules of the world around the real accumulator and switch, checked against I0, I1, I3
and I6. Then the same with one mistake put in at a time, the published protocol's and our own drafts': each must be
caught, or the check has no power.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from anabranch.clients.producer import drain_order, queues, switch
from anabranch.clients.producer.queues import TopicQueues
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.linear_hashing import KeyClass
from tests.clients.producer.recreated_world import RecreatedWorld
from tests.clients.producer.world import TOPIC, UNKEYED, Leader, Receipt, Rules, Violation, World, explicit_route

CHAINS = [(1, 2), (2, 1), (1, 2, 1), (2, 1, 2), (2, 4, 1), (1, 2, 4), (3, 6, 4), (4, 6, 8, 5)]
BELOW_THE_BASE = [(3, 2), (3, 2, 1, 5), (5, 2, 7)]
RECREATED = [((1,), (4,)), ((4,), (1,)), ((2, 4), (3,)), ((3,), (2, 4)), ((1, 2, 1), (2, 1))]
"""The counts of a topic, and of the next one of its name."""
KEYS = (1, 3)
SEVERAL = tuple(range(8))
SEEDS = range(40)
MORE_SEEDS = pytest.param(range(40, 160), marks=pytest.mark.costly)
SEEDS_OF_A_DEFECT = 3000


@pytest.mark.parametrize("seeds", [SEEDS, MORE_SEEDS], ids=["few", "many"])
@pytest.mark.parametrize("barrier", [True, False], ids=["published-last", "taken-up-late"])
@pytest.mark.parametrize("counts", [*CHAINS, *BELOW_THE_BASE], ids=str)
def test_every_schedule_keeps_order(counts: tuple[int, ...], barrier: bool, seeds: range) -> None:
    for seed in seeds:
        world = World(counts, random.Random(seed), barrier=barrier)
        run(world, seed, keys=keys_for(counts))
        assert all(receipt.metadata is not None or refused_as_too_large(receipt) for _, _, receipt in world.sent)


def keys_for(counts: tuple[int, ...]) -> tuple[int, ...]:
    return KEYS if max(counts) <= 4 and counts not in BELOW_THE_BASE else SEVERAL


def run(world: World, seed: int, keys: tuple[int, ...] = KEYS, steps: int = 150) -> None:
    try:
        world.run(keys=keys, records=14, steps=steps)
    except Violation as violation:
        raise Violation(f"seed {seed}: {violation}\n" + " ; ".join(world.trace)) from violation


@pytest.mark.parametrize("seeds", [SEEDS, MORE_SEEDS], ids=["few", "many"])
@pytest.mark.parametrize("chains", RECREATED, ids=str)
def test_every_schedule_keeps_order_in_a_topic_that_is_made_again(
    chains: tuple[tuple[int, ...], tuple[int, ...]], seeds: range
) -> None:
    for seed in seeds:
        world = RecreatedWorld(*chains, random.Random(seed))
        run(world, seed, keys=SEVERAL)
        assert all(receipt.metadata is not None or refused_as_too_large(receipt) for _, _, receipt in world.sent)


@pytest.mark.parametrize("counts", [(1, 2), (2, 1), (1, 2, 1), (4, 6, 8, 5), (3, 2, 1, 5)], ids=str)
def test_expired_batch_loses_only_itself(counts: tuple[int, ...]) -> None:
    """Expiry during the switch (K510): the batch may or may not be stored; others stay in order, once each."""
    given_up = 0
    for seed in SEEDS:
        world = World(counts, random.Random(seed), expiring=True)
        run(world, seed, keys=keys_for(counts))
        given_up += sum(receipt.error is not None for _, _, receipt in world.sent)
    assert given_up > 0


# ---------------------------------------------------------------------------------------------- the power of the check


def no_barrier(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(switch, "closed_partitions", lambda topic: frozenset())


def withdraw_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(switch, "withdraw", lambda queue: None)
    patch.setattr(switch, "closed_partitions", lambda topic: frozenset())


def withdraw_unknown_outcomes(patch: pytest.MonkeyPatch) -> None:
    proper = switch.withdraw

    def withdraw(queue: queues.PartitionQueue) -> None:
        for batch in [one for one in queue.unresolved if not one.on_wire]:
            queue.unresolved.remove(batch)
            batch.done = True
            queue.topic.returned.extend((record, batch.created_at) for record in batch.records)
        proper(queue)

    patch.setattr(switch, "withdraw", withdraw)


def generation_may_fall(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(switch, "is_newer", lambda generation, known: generation != known)


def pipeline_into_the_unknown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(drain_order, "first_contact", lambda queue: False)


def choose_generation_when_sending(patch: pytest.MonkeyPatch) -> None:
    """The published protocol: the topic's newest count goes into each request, and batches stay where they were."""
    withdraw_nothing(patch)
    patch.setattr(switch, "refusal_is_final", lambda batch, generation: False)
    patch.setattr(
        queues.Batch,
        "batch_generation",
        property(lambda batch: batch.queue.batch_generation, lambda batch, value: None),
    )


def younger_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(switch, "_age", lambda entry: -entry[0].order)


def classes_of_one_residue(patch: pytest.MonkeyPatch) -> None:
    """As at and above the base: two classes share keys if their first hashes do."""

    def overlaps(one: KeyClass, other: KeyClass) -> bool:
        return (one.residues[0] - other.residues[0]) % min(one.modulus, other.modulus) == 0

    patch.setattr(KeyClass, "overlaps", overlaps)


def nothing(patch: pytest.MonkeyPatch) -> None:
    pass


Defect = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize(
    ("defect", "chains", "barrier", "rules"),
    [
        pytest.param(choose_generation_when_sending, [(1, 2), (2, 1)], True, Rules(), id="D-a chosen when sent"),
        pytest.param(no_barrier, [(1, 2), (2, 1)], True, Rules(), id="D-b no barrier"),
        pytest.param(withdraw_nothing, [(1, 2), (2, 1)], False, Rules(), id="D-b2 switch not at once"),
        pytest.param(nothing, [(1, 2, 1)], True, Rules(compare_counts=True), id="D-e counts compared"),
        pytest.param(withdraw_unknown_outcomes, [(1, 2), (2, 1)], True, Rules(), id="D-g unknown outcome moved"),
        pytest.param(nothing, [(1, 2)], True, Rules(duplicates_first=False), id="D-g2 generation before duplicate"),
        pytest.param(generation_may_fall, [(1, 2), (2, 1)], False, Rules(), id="D-h generation falls"),
        pytest.param(pipeline_into_the_unknown, [(1, 2), (1, 2, 1)], False, Rules(), id="D-i first contact pipelined"),
        pytest.param(younger_first, [(1, 2), (2, 1)], True, Rules(), id="R8c not by age"),
        pytest.param(classes_of_one_residue, [(3, 2), (5, 2, 7)], True, Rules(), id="classes of one residue"),
    ],
)
def test_each_planted_defect_is_detected(
    defect: Defect,
    chains: list[tuple[int, ...]],
    barrier: bool,
    rules: Rules,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    defect(monkeypatch)
    caught = []
    for seed in range(SEEDS_OF_A_DEFECT):
        world = World(chains[seed % len(chains)], random.Random(seed), barrier=barrier, rules=rules)
        try:
            world.run(keys=keys_for(tuple(world.counts)), records=14, steps=150)
        except Violation as violation:
            caught.append(f"seed {seed}: {violation}")
            break
    assert caught, f"{SEEDS_OF_A_DEFECT} schedules and nobody noticed"


def closed_to_stale_classes_only(topic: TopicQueues) -> frozenset[int]:
    stale = switch.stale_classes(topic)
    return frozenset(index for index in topic.live if any(topic.queue(index).key_class.overlaps(one) for one in stale))


RECREATED_DEFECTS = [
    ("leaders that do not compare ids", "rules", None),
    ("records that overtake those of the deleted topic", "closed_partitions", closed_to_stale_classes_only),
    ("batches that are left behind", "is_left_behind", lambda batch, code: False),
]


@pytest.mark.parametrize("defect", RECREATED_DEFECTS, ids=lambda defect: defect[0])
def test_mistake_with_a_topic_that_is_made_again_is_noticed(
    defect: tuple[str, str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, name, mistake = defect
    if name == "rules":
        rules = Rules(compare_topic_ids=False)
    else:
        rules = Rules()
        monkeypatch.setattr(switch, name, mistake)
    caught = []
    for seed in range(SEEDS_OF_A_DEFECT):
        world = RecreatedWorld(*RECREATED[seed % len(RECREATED)], random.Random(seed), rules=rules)
        try:
            world.run(keys=SEVERAL, records=14, steps=150)
        except Violation as violation:
            caught.append(f"seed {seed}: {violation}")
            break
    assert caught, f"{SEEDS_OF_A_DEFECT} schedules and nobody noticed"


# ----------------------------------------------------------------------------------------------------------- one by one


def settled(counts: tuple[int, ...], **settings: bool) -> World:
    """A world in which nothing happens by chance."""
    return World(counts, random.Random(1), faults=False, **settings)


def waiting(topic: TopicQueues) -> dict[int, list[int]]:
    return {
        index: [int(record.value or b"") for batch in queue.waiting for record in batch.records]
        for index, queue in sorted(topic.queues.items())
        if queue.waiting
    }


def resize(world: World) -> None:
    world.plan()
    for partition in world.behind():
        world.take_up(partition)
    world.publish()


def test_only_affected_partitions_change() -> None:
    """4 -> 5 splits partition 0; others continue unchanged (I13)."""
    world = settled((4, 5))
    for key_hash in range(8):
        world.send(key_hash)
    resize(world)
    world.learn(1)
    topic = world.accumulator.topic(TOPIC)
    assert {index: queue.batch_generation for index, queue in sorted(topic.queues.items())} == {
        0: 1,
        1: 0,
        2: 0,
        3: 0,
        4: 1,
    }
    assert waiting(topic) == {0: [0], 1: [1, 5], 2: [2, 6], 3: [3, 7], 4: [4]}


def test_child_is_closed_until_its_parent_is_resolved() -> None:
    world = settled((1, 2))
    world.send(1)
    world.transmit()
    resize(world)
    world.learn(1)
    world.send(1)
    topic = world.accumulator.topic(TOPIC)
    assert topic.closed == {0, 1}
    world.transmit()
    assert [request.partition for wire in world.wires.values() for request in wire] == [0]
    world.arrive(world.where[0])
    world.answer(world.where[0])
    assert topic.closed == frozenset()
    assert waiting(topic) == {1: [0, 1]}
    assert topic.queue(0).next_sequence == 0
    world.finish()
    world.check()


def test_fenced_producer_requests_metadata_and_waits_for_it() -> None:
    """The leader has the new generation before its publication: nothing is sent, nothing is lost."""
    world = settled((1, 2))
    world.send(1)
    world.plan()
    world.take_up(0)
    world.transmit()
    world.arrive(world.where[0])
    world.answer(world.where[0])
    world.send(1)
    drained = world.accumulator.drain(world.now, lambda topic, p: 0, lambda node: True)
    assert drained.refresh
    assert not drained.requests
    world.publish()
    world.learn(1)
    assert waiting(world.accumulator.topic(TOPIC)) == {1: [0, 1]}


@pytest.mark.parametrize(
    ("response_lost", "first_generation", "fails"),
    [
        pytest.param(True, 3, True, id="unknown to the partition that was created since"),
        pytest.param(False, 3, False, id="never answered, but certainly refused"),
        pytest.param(True, 0, False, id="the same partition would have recognised it"),
    ],
)
def test_k504_outcome_that_only_a_removed_partition_knew(
    response_lost: bool, first_generation: int, fails: bool
) -> None:
    """Sent elsewhere, records that were stored and read before the removal would be stored a second time."""
    world = settled((1, 2))
    world.send(1)
    world.transmit()
    topic = world.accumulator.topic(TOPIC)
    (batch,) = topic.queue(0).unresolved
    if response_lost:
        world.accumulator.delivery.on_lost(batch, world.now)
    code = ErrorCode.INVALID_PARTITION_METADATA
    world.accumulator.delivery.complete(batch, code, world.now, generation=3, first_generation=first_generation)
    ((_, _, receipt),) = world.sent
    assert topic.queue(0).idle
    assert len(topic.returned) == (0 if fails else 1)
    if fails:
        assert isinstance(receipt.error, KafkaError)
        assert receipt.error.code == ErrorCode.REQUEST_TIMED_OUT, "applications treat it as unknown"
        assert "merged away and removed" in str(receipt.error)
        assert topic.queue(0).give_up, "later batches begin a new epoch"


def test_fence_of_partition_never_decreases() -> None:
    """A late response to an older request does not lower the known generation."""
    world = settled((1, 2))
    queue = world.accumulator.topic(TOPIC).queue(0)
    for _ in range(2):
        world.send(1)
        world.transmit()
        queue.established = True  # so that several requests may be on their way
    older, newer = list(queue.unresolved)
    switch.refuse(newer, 2)
    switch.refuse(older, 1)
    assert queue.fence == 2


def test_moved_records_keep_their_age() -> None:
    """Neither waiting nor refused records restart their delivery timeout."""
    world = World((1, 2), random.Random(2), faults=False)  # both fit into one batch
    world.send(1)
    world.transmit()
    (refused,) = world.accumulator.topic(TOPIC).queue(0).unresolved
    world.now = 5.0
    world.send(1)
    world.plan()
    world.take_up(0)
    world.arrive(world.where[0])
    world.now = 7.0
    world.answer(world.where[0])
    world.publish()
    world.learn(1)
    moved = world.accumulator.topic(TOPIC).queue(1).waiting
    assert [len(batch.records) for batch in moved] == [2], "in one batch, which is as old as the older one"
    assert refused.created_at == moved[0].created_at == 0.0


def test_outdated_leader_is_retried_with_same_batch() -> None:
    """K508: its refusal leaves the batch unchanged; the generation shows which side is old."""
    world = settled((1, 2), barrier=False)
    world.plan()
    world.learn(1)
    world.send(2)
    world.transmit()
    (first,) = (request for wire in world.wires.values() for request in wire)
    world.arrive(first.node)
    world.answer(first.node)
    queue = world.accumulator.topic(TOPIC).queue(0)
    assert (first.batch_generation, queue.fenced, list(queue.unresolved)) == (1, False, [first.batch])
    world.transmit()
    assert not any(world.wires.values()), "not before its backoff is over"
    world.take_up(0)
    world.now += 0.1
    world.transmit()
    (second,) = (request for wire in world.wires.values() for request in wire)
    assert (second.batch, second.data) == (first.batch, first.data)
    world.finish()
    world.check()


def test_records_of_explicit_partition_never_move() -> None:
    world = settled((2, 1))
    world.send(0, explicit_route(1))
    world.send(0, explicit_route(0))
    resize(world)
    world.learn(1)
    sealed, target = (receipt for _, _, receipt in world.sent)
    assert isinstance(sealed.error, KafkaError)
    assert not sealed.error.code.retriable
    assert target.error is None
    assert waiting(world.accumulator.topic(TOPIC)) == {0: [1]}
    with pytest.raises(KafkaError, match="is retiring"):
        world.send(0, explicit_route(1))


def test_keyless_records_leave_sealed_partition() -> None:
    world = settled((2, 1))
    for _ in range(20):
        world.send(0, UNKEYED)
    resize(world)
    world.learn(1)
    topic = world.accumulator.topic(TOPIC)
    assert set(waiting(topic)) == {0}
    assert len(waiting(topic)[0]) == 20


def test_resize_during_switch_restarts_it() -> None:
    """1 -> 2 -> 1 while the first batch is unresolved: K503 and Pravega's nested seal."""
    world = settled((1, 2, 1))
    world.send(1)
    world.transmit()
    resize(world)
    world.learn(1)
    world.send(1)
    resize(world)
    world.learn(2)
    world.send(1)
    world.finish()
    world.check()
    assert [stored.number for stored in world.leaders[0].log] == [0, 1, 2]


def test_recreated_topic_starts_with_new_state() -> None:
    world = settled((1, 2))
    resize(world)
    world.learn(1)
    topic = world.accumulator.topic(TOPIC)
    world.send(1)
    topic.queue(1).established = True
    world.accumulator.adopt(TOPIC, b"other", world.lineages[0], range(1))
    assert topic.generation == 0
    assert waiting(topic) == {0: [0]}
    assert not topic.queue(1).established


@pytest.mark.parametrize("answered", [False, True])
def test_batch_of_deleted_topic_does_not_wait_for_its_generation_in_the_next_topic(answered: bool) -> None:
    """The new topic of the same name has never had it, so its leader refuses the batch each time."""
    world = settled((1, 2))
    resize(world)
    world.learn(1)
    world.send(2)
    world.transmit()
    node = world.where[0]
    if answered:
        world.leaders = {}
        world.arrive(node)
        world.answer(node)
    world.leaders, world.planned, world.topic_id = {0: Leader(0)}, 0, b"other"
    world.learn(0)
    world.send(2)
    for _ in range(5):
        world.now += 0.5
        world.transmit()
        while world.wires[node]:
            world.arrive(node)
            world.answer(node)
    assert [stored.number for stored in world.leaders[0].log] == [0, 1]


WIDER = Lineage(4, [(0, 4)])
"""The lineage of a topic that was deleted and made again with other partitions, in the same generation as before."""


@pytest.mark.parametrize("adopted_first", [False, True])
def test_refused_batch_of_deleted_topic_is_partitioned_for_the_next_one(adopted_first: bool) -> None:
    """The generation does not tell the two topics apart, but the keys have other partitions. Younger records wait."""
    world = settled((1, 4))
    world.send(1)
    world.transmit()
    topic = world.accumulator.topic(TOPIC)
    world.leaders = {}
    world.arrive(world.where[0])
    if adopted_first:
        world.accumulator.adopt(TOPIC, b"other", WIDER, range(4))
        world.send(1)
        world.transmit()
        assert waiting(topic) == {1: [1]}, "an older record of its key is on its way"
    world.answer(world.where[0])
    if not adopted_first:
        world.accumulator.adopt(TOPIC, b"other", WIDER, range(4))
        world.send(1)
    assert waiting(topic) == {1: [0, 1]}


@pytest.mark.parametrize("with_id", [True, False])
def test_batch_of_deleted_topic_without_response_moves_once_a_leader_does_not_know_its_topic(with_id: bool) -> None:
    """Its topic alone may have stored it, but metadata of another one may be older. Without an id any topic may."""
    world = settled((1, 4))
    world.send(1)
    world.transmit()
    topic = world.accumulator.topic(TOPIC)
    (batch,) = topic.queue(0).unresolved
    if not with_id:
        batch.batch_generation = -1
    world.accumulator.delivery.on_lost(batch, world.now)
    world.accumulator.adopt(TOPIC, b"other", WIDER, range(4))
    world.accumulator.note_gone(TOPIC, range(4))
    world.accumulator.delivery.complete(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER, world.now)
    assert list(topic.queue(0).unresolved) == [batch]
    assert batch.topic_id == b"id", "it is not for the other one"
    world.accumulator.delivery.complete(batch, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, world.now)
    assert waiting(topic) == ({1: [0]} if with_id else {})
    assert topic.queue(0).next_sequence == 1, "if it is stored after all, another batch is no duplicate of it"


@pytest.mark.parametrize("with_id", [True, False])
def test_batch_of_deleted_topic_without_response_moves_if_the_next_topic_lacks_its_partition(with_id: bool) -> None:
    """No leader would respond any more. Without an id in its requests the next topic may have had it before a merge."""
    world = settled((4, 1))
    world.send(3)
    world.transmit()
    topic = world.accumulator.topic(TOPIC)
    (batch,) = topic.queue(3).unresolved
    if not with_id:
        batch.batch_generation = -1
    world.accumulator.delivery.on_lost(batch, world.now)
    world.accumulator.adopt(TOPIC, b"other", Lineage(1, [(0, 1)]), range(1))
    world.accumulator.note_gone(TOPIC, range(1))
    assert waiting(topic) == ({0: [0]} if with_id else {})


def test_batch_of_deleted_topic_that_was_stored_there_holds_nothing_back() -> None:
    world = settled((1, 4))
    world.send(1)
    world.transmit()
    topic = world.accumulator.topic(TOPIC)
    world.arrive(world.where[0])
    world.accumulator.adopt(TOPIC, b"other", WIDER, range(4))
    assert topic.closed == {0, 1, 2, 3}
    world.answer(world.where[0])
    assert not topic.closed
    assert not topic.queue(0).established, "the next topic's leader has not seen this producer"


def test_refusal_by_a_leader_of_the_deleted_topic_fences_no_partition_of_the_next_one() -> None:
    """Its generation is higher than any of the next topic, whose metadata would be waited for in vain."""
    world = settled((1, 4))
    world.send(1)
    world.transmit()
    topic = world.accumulator.topic(TOPIC)
    (batch,) = topic.queue(0).unresolved
    world.accumulator.adopt(TOPIC, b"other", WIDER, range(4))
    world.accumulator.delivery.complete(batch, ErrorCode.INVALID_PARTITION_METADATA, world.now, generation=7)
    assert waiting(topic) == {1: [0]}
    assert not topic.queue(0).fenced


def test_refusal_of_batch_of_deleted_topic_fences_no_partition_of_a_topic_without_generations() -> None:
    world = settled((1, 2))
    resize(world)
    world.learn(1)
    world.send(2)
    world.transmit()
    topic = world.accumulator.topic(TOPIC)
    (batch,) = topic.queue(0).unresolved
    world.accumulator.adopt(TOPIC, b"other", None, range(1))
    world.accumulator.delivery.complete(batch, ErrorCode.INVALID_PARTITION_METADATA, world.now, generation=0)
    assert waiting(topic) == {0: [0]}
    assert not topic.queue(0).fenced


def test_receipt_is_completed_once() -> None:
    receipt = Receipt()
    receipt.set_exception(ValueError())
    with pytest.raises(AssertionError, match="told twice"):
        receipt.set_exception(ValueError())


def refused_as_too_large(receipt: Receipt) -> bool:
    """What is left to a batch of several records that may be stored already: split, it could be stored twice."""
    return isinstance(receipt.error, KafkaError) and receipt.error.code == ErrorCode.MESSAGE_TOO_LARGE
