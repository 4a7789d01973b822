"""Stock producers, producers with generations and both, on a topic that grows from 2 to 5 partitions, by every policy.

The topics are grown by the stock clients themselves, as librdkafka's, kafkajs's and confluent-kafka's own tests do.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.linear_hashing import address
from examples.stock_producer import ResizedTopic
from tests.clients.partitioners.load import resize
from tests.interop.other_clients import within

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"),
]

BEFORE, AFTER, BASE = 2, 5, 1
POLICIES = ("auto", "refuse", "allow", "verify")
names = (f"grown-{number}" for number in itertools.count())


class Row(NamedTuple):
    """A record to send; without a partition the client chooses it."""

    partition: int | None
    key: bytes | None
    value: bytes


# three clients, three functions each: send (what became of each row: "" or the error's name), grow, read


def send_by_confluent(servers: str, topic: str, rows: Iterable[Row]) -> list[str]:
    from confluent_kafka import Producer as Stock

    outcomes: dict[bytes, str] = {}

    def told(error: Any, message: Any) -> None:
        outcomes[message.value()] = "" if error is None else error.name()

    producer = Stock({"bootstrap.servers": servers, "acks": "all", "linger.ms": 1, "log_level": 0})
    for row in rows:
        where = {} if row.partition is None else {"partition": row.partition}
        producer.produce(topic, row.value, row.key, on_delivery=told, **where)
    assert producer.flush(30) == 0
    return [outcomes[row.value] for row in rows]


def grow_by_confluent(servers: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, AFTER)])[topic].result(30)


def send_by_kafka_python(servers: str, topic: str, rows: Iterable[Row]) -> list[str]:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=1)
    outcomes = []
    try:
        for sent in [producer.send(topic, row.value, row.key, partition=row.partition) for row in rows]:
            try:
                sent.get(timeout=30)
                outcomes.append("")
            except KafkaError as error:
                outcomes.append(getattr(error, "message", type(error).__name__))
    finally:
        producer.close(timeout=5)
    return outcomes


def grow_by_kafka_python(servers: str, topic: str) -> None:
    from kafka import KafkaAdminClient
    from kafka.admin import NewPartitions

    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.create_partitions({topic: NewPartitions(AFTER)})
    finally:
        admin.close()


def send_by_aiokafka(servers: str, topic: str, rows: Iterable[Row]) -> list[str]:
    from aiokafka import AIOKafkaProducer

    async def send() -> list[str]:
        async with AIOKafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=1) as producer:
            sent = [await producer.send(topic, row.value, row.key, partition=row.partition) for row in rows]
            outcomes = await asyncio.gather(*sent, return_exceptions=True)
        return [getattr(one, "message", type(one).__name__) if isinstance(one, Exception) else "" for one in outcomes]

    return asyncio.run(send())


def grow_by_aiokafka(servers: str, topic: str) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

    async def grow() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            await admin.create_partitions({topic: NewPartitions(AFTER)})
        finally:
            await admin.close()

    asyncio.run(grow())


class Stock(NamedTuple):
    """A client that knows nothing of generations."""

    name: str
    send: Callable[[str, str, Iterable[Row]], list[str]]
    grow: Callable[[str, str], None]


STOCK = (
    Stock("confluent-kafka", send_by_confluent, grow_by_confluent),
    Stock("kafka-python", send_by_kafka_python, grow_by_kafka_python),
    Stock("aiokafka", send_by_aiokafka, grow_by_aiokafka),
)


# a producer and a consumer with generations


def run(work: Any) -> Any:
    """Ours, from a test that is not asynchronous."""
    return asyncio.run(work)


async def created(servers: str, policy: str | None) -> str:
    """A topic of two partitions."""
    name = next(names)
    configs = {} if policy is None else {"reshard.legacy.producers": policy}
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic(name=name, partitions=BEFORE, configs=configs)])
        await admin.wait_for_topic(name)
    return name


async def send_by_ours(servers: str, topic: str, rows: Iterable[Row]) -> None:
    """Nothing that we send is ever refused."""
    async with Producer(servers) as producer:
        for sent in [await producer.send(topic, row.value, row.key) for row in rows]:
            await sent


async def read_by_ours(servers: str, topic: str, count: int) -> list[Row]:
    """So many records, as a group gets them."""
    async with Consumer(
        topic, bootstrap_servers=servers, group_id=f"{topic}-ours", auto_offset_reset="earliest"
    ) as reader:
        async with asyncio.timeout(30):
            got = [await reader.getone() for _ in range(count)]
    return [Row(one.partition, one.key, one.value or b"") for one in got]


def read_by_stock(servers: str, topic: str, count: int) -> list[bytes]:
    """The values of all that is stored."""
    from confluent_kafka import Consumer as StockConsumer

    consumer = StockConsumer(
        {"bootstrap.servers": servers, "group.id": f"{topic}-stock", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    enough = within(30, lambda: len(values) >= count)
    while not enough():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return values


def keyed(what: str, count: int = 40) -> list[Row]:
    return [Row(None, b"key-%d" % (number % 8), f"{what}-{number:04d}".encode()) for number in range(count)]


def to_all(what: str, count: int) -> list[Row]:
    """A record without a key for every partition."""
    return [Row(index, None, f"{what}-to-{index}".encode()) for index in range(count)]


def at_home(what: str, count: int = 20) -> list[Row]:
    """Keys where linear hashing over the grown topic puts them."""
    keys = [b"key-%d" % number for number in range(count)]
    return [Row(address(murmur2(key), BASE, AFTER), key, b"%s of %s" % (what.encode(), key)) for key in keys]


def astray(what: str, count: int = 8) -> list[Row]:
    """Keys one partition beside that."""
    return [Row((row.partition + 1) % AFTER, row.key, row.value) for row in at_home(what, count)]  # type: ignore[operator]


def accepted(outcomes: list[str]) -> bool:
    """All of them, or none: in between is neither."""
    assert set(outcomes) in ({""}, {"POLICY_VIOLATION"}), outcomes
    return outcomes[0] == ""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("stock", STOCK, ids=[one.name for one in STOCK])
class TestGrowing:
    """2 -> 5 partitions, asked for by the stock client itself."""

    def test_topic_written_by_stock_producers_only(self, anabranch_cluster: Any, stock: Stock, policy: str) -> None:
        servers = anabranch_cluster.bootstrap_servers
        topic = run(created(servers, None if policy == "auto" else policy))
        early = [*keyed("early"), *to_all("early", BEFORE)]
        assert accepted(stock.send(servers, topic, early))
        stock.grow(servers, topic)
        late = to_all("late", AFTER)
        fits = accepted(stock.send(servers, topic, late))
        assert fits is (policy != "refuse")
        stored = early + late * fits
        if policy == "verify":
            assert accepted(stock.send(servers, topic, at_home("right")))
            assert all(stock.send(servers, topic, astray("wrong"))), "each is told, whatever a client makes of it"
            stored += at_home("right")
        elif fits:
            assert accepted(stock.send(servers, topic, keyed("hashed as ever")))
            stored += keyed("hashed as ever")
        values = read_by_stock(servers, topic, len(stored))
        assert sorted(values) == sorted(row.value for row in stored), "what was acknowledged, and nothing else, once"

    def test_topic_written_by_producers_with_generations_only(
        self, anabranch_cluster: Any, stock: Stock, policy: str
    ) -> None:
        servers = anabranch_cluster.bootstrap_servers
        topic = run(created(servers, None if policy == "auto" else policy))
        run(send_by_ours(servers, topic, keyed("a")))
        assert accepted(stock.send(servers, topic, to_all("early", BEFORE))), "before a resize nobody is refused"
        stock.grow(servers, topic)
        run(send_by_ours(servers, topic, keyed("b")))
        assert accepted(stock.send(servers, topic, to_all("late", AFTER))) is (policy in ("allow", "verify"))
        late = AFTER if policy in ("allow", "verify") else 0
        got = run(read_by_ours(servers, topic, 80 + BEFORE + late))
        by_key = defaultdict(list)
        for row in got:
            if row.key is not None:
                by_key[row.key].append(row.value)
        assert all(values == sorted(values) for values in by_key.values()), "each key in the order of its producer"
        assert sorted(itertools.chain(*by_key.values())) == [row.value for row in keyed("a") + keyed("b")]

    def test_topic_written_by_both_kinds_of_producers(self, anabranch_cluster: Any, stock: Stock, policy: str) -> None:
        """It grows as a stock topic, then becomes ordered: stock producers are refused from then on."""
        servers = anabranch_cluster.bootstrap_servers
        topic = run(created(servers, None if policy == "auto" else policy))
        assert accepted(stock.send(servers, topic, to_all("early", BEFORE)))
        stock.grow(servers, topic)
        between = accepted(stock.send(servers, topic, to_all("between", AFTER)))
        assert between is (policy != "refuse")
        run(send_by_ours(servers, topic, keyed("a")))
        late = accepted(stock.send(servers, topic, to_all("late", AFTER)))
        assert late is (policy in ("allow", "verify"))
        count = BEFORE + AFTER * (between + late) + 40
        got = run(read_by_ours(servers, topic, count))
        ours = defaultdict(list)
        for row in got:
            if row.key is not None:
                assert row.partition == address(murmur2(row.key), BASE, AFTER)
                ours[row.key].append(row.value)
        assert all(values == sorted(values) for values in ours.values())
        assert len({row.value for row in got}) == count


def test_documented_example_keeps_order_and_is_accepted(anabranch_cluster: Any) -> None:
    """`verify`: a stock producer with lineage partitioning, while the topic grows twice and shrinks."""
    servers = anabranch_cluster.bootstrap_servers
    topic = run(created(servers, "verify"))
    producer = ResizedTopic(servers, topic, log_level=0)
    rounds = []
    for number, count in enumerate((BEFORE, AFTER, 7, 3)):
        if number:
            run(resize(servers, topic, count))  # behind the producer's back
        rounds.append(keyed(str(number), 60))
        for row in rounds[-1]:
            producer.send(row.key or b"", row.value)
    producer.flush()
    sent = list(itertools.chain(*rounds))
    got = run(read_by_ours(servers, topic, len(sent)))
    by_key = defaultdict(list)
    for row in got:
        by_key[row.key].append(row.value)
    assert all(values == sorted(values) for values in by_key.values())
    assert sorted(row.value for row in got) == sorted(row.value for row in sent)
    assert {row.partition for row in got} > set(range(BEFORE)), "keys have moved"
