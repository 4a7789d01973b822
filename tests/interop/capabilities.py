"""The required capabilities of every client: one function per column of the matrix."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from tests.interop import clients
from tests.interop.clients import Client
from tests.interop.driving import Driver, Record
from tests.interop.world import World

SESSION_MS = 20_000


def produce_and_consume(world: World, client: Client) -> None:
    """Everything comes back, per key in order, and a second member begins where the first one stopped."""
    topic = world.topic(client.name)
    with client.run("produce", servers=world.servers, topic=topic, count=300) as producer:
        producer.finish()
    with client.run("consume", servers=world.servers, topic=topic, group=topic) as first:
        first.until(lambda: len(first.values) >= 300, "300 records")
        first.stop()
    assert first.values == producer.acked == expected_values(300)
    assert in_key_order(first.records)
    with client.run("produce", servers=world.servers, topic=topic, first=300, count=7) as producer:
        producer.finish()
    with client.run("consume", servers=world.servers, topic=topic, group=topic) as second:
        second.until(lambda: second.values >= expected_values(7, 300), "the new records")
        second.stop()
    assert second.values == expected_values(7, 300), "it did not begin where the first one had stopped"


def groups_eager(world: World, client: Client) -> None:
    """Two members share the partitions; when one leaves, the other has them all."""
    topic = world.topic(client.name)
    with ExitStack() as stack:
        first, second = (member(stack, world, client, topic) for _ in range(2))
        shared(first, second)
        with client.run("produce", servers=world.servers, topic=topic, count=200) as producer:
            producer.finish()
        first.until(lambda: first.values | second.values >= expected_values(200), "all records between them")
        second.stop()
        first.until(lambda: first.owned == set(range(4)), "all partitions for the one that stays")
        first.stop()


def groups_cooperative(world: World, client: Client) -> None:
    """A second member comes: the first one gives up half of its partitions, and never lets go of the others."""
    topic = world.topic(client.name)
    with ExitStack() as stack:
        first = member(stack, world, client, topic, assignor="cooperative")
        first.until(lambda: first.owned == set(range(4)), "all partitions")
        second = member(stack, world, client, topic, assignor="cooperative")
        shared(first, second)
        assert all(len(one["partitions"]) <= 2 for one in first.told("revoked")), first.told("revoked")
        with client.run("produce", servers=world.servers, topic=topic, count=200) as producer:
            producer.finish()
        first.until(lambda: first.values | second.values >= expected_values(200), "all records between them")
        second.stop()
        first.until(lambda: first.owned == set(range(4)), "all partitions for the one that stays")
        first.stop()


def static_members(world: World, client: Client) -> None:
    """A static member is killed and returns within its session: no rebalance."""
    topic = world.topic(client.name)
    with ExitStack() as stack:
        first = member(stack, world, client, topic, instance="first", session_ms=30000)
        second = member(stack, world, client, topic, instance="second", session_ms=30000)
        shared(first, second)
        noticed = len(first.told("assigned", "revoked"))
        owned = second.owned
        second.kill()
        again = member(stack, world, client, topic, instance="second", session_ms=30000)
        again.until(lambda: again.owned == owned, f"the same partitions {owned}")
        with client.run("produce", servers=world.servers, topic=topic, count=100) as producer:
            producer.finish()
        first.until(lambda: first.values | again.values >= expected_values(100), "all records between them")
        assert len(first.told("assigned", "revoked")) == noticed, "the other member was bothered"


def transactions(world: World, client: Client) -> None:
    """Readers of committed records see what was committed, the others everything."""
    topic = world.topic(client.name)
    asked = {"servers": world.servers, "topic": topic}
    with client.run("transact", **asked, transactional_id=topic, transactions=6, per=5) as producer:
        producer.finish()
    committed = {value for one in producer.told("committed") for value in one["values"]}
    everything = committed | {value for one in producer.told("aborted") for value in one["values"]}
    assert len(everything) == 30 and (len(committed) == 15 or not client.aborts)
    for isolation, expected in (("read_committed", committed), ("read_uncommitted", everything)):
        with client.run("consume", **asked, group=f"{topic}-{isolation}", isolation=isolation) as consumer:
            consumer.until(lambda c=consumer, e=expected: c.values >= e, f"what is {isolation}")
            consumer.stop()
        assert consumer.values == expected, isolation


def admin(world: World, client: Client) -> None:
    """The life of a topic: create, describe, alter, delete records, grow, delete."""
    with client.run("admin", servers=world.servers, topic=world.name(client.name)) as run:
        run.finish()
    assert [(one["name"], one["seen"]) for one in run.told("step")] == [
        ("create", 2),
        ("describe", "60000"),
        ("alter", "120000"),
        ("delete records", 2),
        ("grow", 4),
        ("delete", None),
    ]


def codecs(world: World, client: Client) -> None:
    """Everything that the client can compress comes back, through one topic."""
    topic = world.topic(client.name)
    for place, codec in enumerate(client.codecs):
        asked = {"servers": world.servers, "topic": topic, "codec": codec}
        with client.run("produce", **asked, first=50 * place, count=50) as producer:
            producer.finish()
        assert not producer.told("failed"), codec
    with client.run("consume", servers=world.servers, topic=topic, group=topic) as consumer:
        everything = expected_values(50 * len(client.codecs))
        consumer.until(lambda: consumer.values >= everything, "all records")
        consumer.stop()


def old_formats(world: World, client: Client) -> None:
    """The client takes the cluster for a Kafka 0.9: message sets instead of record batches, both ways."""
    topic = world.topic(client.name)
    asked = {"servers": world.servers, "topic": topic}
    with client.run("produce", **asked, count=50, old=True) as producer:
        producer.finish()
    with client.run("produce", **asked, first=50, count=50) as producer:
        producer.finish()
    for old in (True, False):
        with client.run("consume", **asked, group=f"{topic}-{old}", old=old) as consumer:
            consumer.until(lambda c=consumer: c.values >= expected_values(100), "all records")
            consumer.stop()


def leader_killed(world: World, client: Client) -> None:
    """A partition's leader is killed: nothing that was acknowledged gets lost, and keys keep their order."""
    topic = world.topic(client.name)
    survives(world, client, topic, lambda: world.leader(topic))


def coordinator_killed(world: World, client: Client) -> None:
    """The group's coordinator is killed: the group continues from its commits."""
    topic = world.topic(client.name)
    survives(world, client, topic, lambda: world.coordinator(topic))
    with client.run("produce", servers=world.servers, topic=topic, first=10**7, count=7) as producer:
        producer.finish()
    with client.run("consume", servers=world.servers, topic=topic, group=topic, session_ms=SESSION_MS) as consumer:
        consumer.until(lambda: consumer.values >= expected_values(7, 10**7), "the new records")
        consumer.stop()
    assert len(consumer.values) < 100, "it began from the beginning"


def survives(world: World, client: Client, topic: str, victim: Callable[[], int]) -> None:
    """A node dies while a producer and a consumer run."""
    asked = {"servers": world.servers, "topic": topic}
    with (
        client.run("consume", **asked, group=topic, session_ms=SESSION_MS) as consumer,
        client.run("produce", **asked, pace_ms=3) as producer,
    ):
        consumer.until(lambda: len(consumer.values) >= 100, "records before the kill")
        killed = victim()
        world.kill(killed)
        world.until(lambda: victim() not in (killed, -1), "somebody else")
        seen = len(consumer.values)
        consumer.until(lambda: len(consumer.values) >= seen + 200, "records after the kill")
        producer.stop()
        assert not producer.told("failed")
        assert producer.acked <= world.stored(topic), sorted(producer.acked - world.stored(topic))
        consumer.until(lambda: consumer.values >= producer.acked, "everything that was acknowledged")
        consumer.stop()
    assert in_key_order(consumer.records)
    world.heal(topic)


def resized(world: World, client: Client) -> None:
    """A topic grows and shrinks while the client reads; what it may not write any more is refused at once."""
    topic = world.topic(client.name, reshard_legacy_consumers_shrink="warn")
    asked = {"servers": world.servers, "topic": topic}
    with client.run("consume", **asked, group=topic) as consumer:
        with client.run("produce", **asked, count=100) as producer:
            producer.finish()
        consumer.until(lambda: consumer.values >= expected_values(100), "records before the resizes")
        for place, count in enumerate((6, 3), 1):
            world.resize(topic, count)
            written = expected_values(100, 100 * place)
            world.do(our_producer(world, topic, sorted(written)))
            consumer.until(lambda w=written: consumer.values >= w, f"records of {count} partitions")
        consumer.stop()
    with client.run("produce", **asked, first=10**6, count=7) as producer:
        producer.finish()
    failed = producer.told("failed")
    assert failed, producer.events  # partitions that no resize has touched take records
    assert all("POLICY" in one["error"].upper() for one in failed), failed
    free = world.topic(client.name, reshard_legacy_producers="allow")
    world.resize(free, 6)
    with client.run("produce", servers=world.servers, topic=free, count=50) as producer:
        producer.finish()
    assert not producer.told("failed")


async def our_producer(world: World, topic: str, values: list[str]) -> None:
    """A producer with generations."""
    from anabranch import Producer

    async with Producer(bootstrap_servers=world.servers) as producer:
        for place, value in enumerate(values):
            await producer.send(topic, key=b"key-%d" % (place % 7), value=value.encode())


CAPABILITIES: Final[dict[str, Callable[[World, Client], None]]] = {
    "produce": produce_and_consume,
    "eager": groups_eager,
    clients.COOPERATIVE: groups_cooperative,
    clients.STATIC: static_members,
    clients.TRANSACTIONS: transactions,
    clients.ADMIN: admin,
    "codecs": codecs,
    clients.OLD_FORMATS: old_formats,
    "leader killed": leader_killed,
    "coordinator killed": coordinator_killed,
    clients.RESIZE: resized,
}


def member(stack: ExitStack, world: World, client: Client, topic: str, **asked: object) -> Driver:
    """A member of a group that has the topic's name."""
    return stack.enter_context(client.run("consume", servers=world.servers, topic=topic, group=topic, **asked))


def shared(first: Driver, second: Driver) -> None:
    """Wait until two members have all four partitions between them."""

    def fair() -> bool:
        return len(first.owned) == len(second.owned) == 2 and first.owned | second.owned == set(range(4))

    first.until(fair, f"a fair share: {first.owned} and {second.owned}")


def expected_values(count: int, first: int = 0) -> set[str]:
    """The values of records."""
    return {f"{number:08d}" for number in range(first, first + count)}


def in_key_order(seen: list[Record]) -> bool:
    """Whether, repetitions aside, the values of every key rise."""
    latest: dict[str, str] = {}
    known: set[Record] = set()
    for key, value in seen:
        if (key, value) not in known and value < latest.get(key, ""):
            return False
        known.add((key, value))
        latest[key] = max(value, latest.get(key, ""))
    return True
