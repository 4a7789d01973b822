"""Records golden frames: `python -m tests.protocol.capture [CLIENT ...]`.

Starts one node behind a recording proxy and lets real clients do what clients do. Of each API and version that a client
uses, the richest exchange below `FRAME_BYTES` is kept. confluent-kafka, aiokafka and kafka-python are always at hand;
kafkajs needs KAFKAJS (a directory in which `npm install kafkajs` ran), Kafka's own tools ANABRANCH_KAFKA_JARS.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anabranch.cluster.in_process import Cluster
from anabranch.protocol.framing import FrameReader
from anabranch.protocol.registry import BY_KEY
from anabranch.spark_jobs import java
from tests.protocol.exchanges import Exchange, exchange_of, save

FRAME_BYTES = 2000
OURS = (b"broker-", b"controller-", b"transaction-coordinator-")
"""How the client ids of our own nodes begin."""


class Recorder:
    """A proxy before one node that remembers what went through."""

    def __init__(self) -> None:
        self.exchanges: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        self.port = 0
        self.node_port = 0

    async def start(self) -> None:
        """Listen on a port of the system's choice."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            node_reader, node_writer = await asyncio.open_connection("127.0.0.1", self.node_port)
        except OSError:
            writer.close()
            return
        waiting: dict[bytes, bytes] = {}

        def asked(frame: bytes) -> None:
            waiting[frame[4:8]] = frame

        def answered(frame: bytes) -> None:
            request = waiting.pop(frame[:4], None)
            if request is not None:
                self._note(request, frame)

        await asyncio.gather(_pump(reader, node_writer, asked), _pump(node_reader, writer, answered))

    def _note(self, request: bytes, response: bytes) -> None:
        key, version = int.from_bytes(request[:2], "big"), int.from_bytes(request[2:4], "big")
        if key not in BY_KEY or version > BY_KEY[key].last_version or request[10:].startswith(OURS):
            return
        size = len(request) + len(response)
        known = sum(map(len, self.exchanges.get((key, version), ())))
        if not known or known < size <= FRAME_BYTES or (known > FRAME_BYTES and size < known):
            self.exchanges[key, version] = (request, response)

    def take(self) -> list[Exchange]:
        """What was recorded since the last time."""
        found = [exchange_of(request, response, self.port) for request, response in self.exchanges.values()]
        self.exchanges.clear()
        return found


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[bytes], None]) -> None:
    frames = FrameReader()
    try:
        while data := await reader.read(65536):
            frames.feed(data)
            while (frame := frames.next_frame()) is not None:
                note(bytes(frame))
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


def confluent(servers: str) -> None:
    """librdkafka: transactions, a group, administration."""
    from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions
    from confluent_kafka.admin import NewTopic as Topic

    base = {"bootstrap.servers": servers}
    admin = AdminClient(base)
    _quietly(lambda: admin.create_topics([Topic("flights", 2, 1)])["flights"].result(10))
    producer = Producer({**base, "transactional.id": "golden", "linger.ms": 5})
    producer.init_transactions(20)
    producer.begin_transaction()
    for number in range(3):
        producer.produce("flights", key=b"N14228", value=b"UA1545-%d" % number, headers={"leg": b"EWR"})
    producer.flush(10)
    consumer = Consumer({**base, "group.id": "golden-rd", "auto.offset.reset": "earliest"})
    consumer.subscribe(["flights"])
    _quietly(lambda: consumer.poll(1))
    _quietly(
        lambda: producer.send_offsets_to_transaction(
            [TopicPartition("flights", 0, 1)], consumer.consumer_group_metadata(), 10
        )
    )
    producer.commit_transaction(20)
    for _ in range(3):
        _quietly(lambda: consumer.poll(1))
    _quietly(lambda: consumer.commit(asynchronous=False))
    _quietly(lambda: consumer.get_watermark_offsets(TopicPartition("flights", 0), 5))
    _quietly(lambda: consumer.offsets_for_times([TopicPartition("flights", 0, 1)], 5))
    _quietly(lambda: admin.list_consumer_groups().result(5))
    _quietly(lambda: admin.describe_consumer_groups(["golden-rd"])["golden-rd"].result(5))
    consumer.close()
    asked = [ConsumerGroupTopicPartitions("golden-rd", [TopicPartition("flights", 0)])]
    _quietly(lambda: admin.list_consumer_group_offsets(asked)["golden-rd"].result(5))
    _quietly(lambda: admin.describe_cluster().result(5))
    _quietly(lambda: admin.create_partitions([NewPartitions("flights", 3)])["flights"].result(10))
    topic = ConfigResource(ConfigResource.Type.TOPIC, "flights")
    _quietly(lambda: admin.describe_configs([topic])[topic].result(5))
    change = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ConfigResource.Type.TOPIC, "flights", incremental_configs=[change])
    _quietly(lambda: next(iter(admin.incremental_alter_configs([changed]).values())).result(5))
    _quietly(lambda: next(iter(admin.delete_records([TopicPartition("flights", 0, 1)]).values())).result(5))
    _quietly(lambda: admin.delete_consumer_groups(["golden-rd"])["golden-rd"].result(5))
    _quietly(lambda: admin.delete_topics(["flights"])["flights"].result(10))


def librdkafka_0_9(servers: str) -> None:
    """librdkafka for a cluster of 2015: message sets."""
    from confluent_kafka import Consumer, Producer

    base = {"bootstrap.servers": servers, "api.version.request": False, "broker.version.fallback": "0.9.0"}
    base["log_level"] = 0
    producer = Producer({**base, "compression.type": "gzip", "linger.ms": 5})
    for number in range(3):
        producer.produce("old-flights", key=b"N14228", value=b"UA1545-%d" % number)
    producer.flush(20)
    consumer = Consumer({**base, "group.id": "golden-old", "auto.offset.reset": "earliest"})
    consumer.subscribe(["old-flights"])
    for _ in range(4):
        _quietly(lambda: consumer.poll(1))
    _quietly(lambda: consumer.commit(asynchronous=False))
    consumer.close()


def aiokafka(servers: str) -> None:
    """aiokafka: transactions, a group, administration."""
    asyncio.run(_aiokafka(servers))


async def _aiokafka(servers: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic("flights-aio", 2, 1)])
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="golden-aio")
    async with producer, producer.transaction():
        for number in range(3):
            await producer.send_and_wait("flights-aio", b"UA1545-%d" % number, key=b"N14228")
        await producer.send_offsets_to_transaction({TopicPartition("flights-aio", 0): 1}, "golden-aio")
    consumer = AIOKafkaConsumer(
        "flights-aio", bootstrap_servers=servers, group_id="golden-aio-2", auto_offset_reset="earliest"
    )
    async with consumer:
        await consumer.getmany(timeout_ms=2000)
        await consumer.commit()
        await consumer.end_offsets([TopicPartition("flights-aio", 0)])
        await admin.describe_consumer_groups(["golden-aio-2"])
    await admin.list_consumer_groups()
    await admin.describe_cluster()
    await admin.delete_topics(["flights-aio"])
    await admin.close()


def kafka_python(servers: str) -> None:
    """kafka-python: a producer, a group, administration."""
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import NewTopic

    admin = KafkaAdminClient(bootstrap_servers=servers)
    _quietly(lambda: admin.create_topics([NewTopic("flights-kp", 2, 1)]))
    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=5)
    for number in range(3):
        producer.send("flights-kp", b"UA1545-%d" % number, key=b"N14228")
    producer.flush(10)
    producer.close(5)
    consumer = KafkaConsumer(
        "flights-kp", bootstrap_servers=servers, group_id="golden-kp", auto_offset_reset="earliest"
    )
    _quietly(lambda: consumer.poll(3000))
    _quietly(consumer.commit)
    _quietly(lambda: consumer.end_offsets([TopicPartition("flights-kp", 0)]))
    _quietly(lambda: admin.describe_groups(["golden-kp"]))
    _quietly(admin.list_groups)
    consumer.close()
    _quietly(admin.describe_cluster)
    _quietly(lambda: admin.delete_topics(["flights-kp"]))
    admin.close()


def kafka_python_0_10(servers: str) -> None:
    """kafka-python for a cluster of 2016: message sets with timestamps."""
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=servers, api_version=(0, 10), compression_type="lz4", enable_idempotence=False, linger_ms=5
    )
    for number in range(3):
        producer.send("flights-2016", b"UA1545-%d" % number, key=b"N14228")
    producer.flush(10)
    producer.close(5)
    consumer = KafkaConsumer(
        "flights-2016",
        bootstrap_servers=servers,
        api_version=(0, 10),
        group_id="golden-2016",
        auto_offset_reset="earliest",
    )
    _quietly(lambda: consumer.poll(3000))
    _quietly(consumer.commit)
    consumer.close()


def kafkajs(servers: str) -> None:
    """kafkajs, in the directory that KAFKAJS names."""
    script = Path(__file__).with_name("capture_kafkajs.js")
    subprocess.run(["node", script, servers], cwd=os.environ["KAFKAJS"], env={**os.environ}, timeout=60, check=True)


def kafka_tools(servers: str) -> None:
    """The tools of Kafka 3.9, which use its Java clients."""
    for line in (
        "org.apache.kafka.tools.TopicCommand --create --topic flights-java --partitions 2 --replication-factor 1",
        "org.apache.kafka.tools.ProducerPerformance --topic flights-java --num-records 3 --record-size 10"
        " --throughput -1 --transactional-id golden-java --producer-props bootstrap.servers={servers}",
        "org.apache.kafka.tools.consumer.ConsoleConsumer --topic flights-java --from-beginning --max-messages 3"
        " --timeout-ms 8000 --group golden-java --isolation-level read_committed",
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand --describe --all-groups",
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand --delete --group golden-java",
        "org.apache.kafka.tools.GetOffsetShell --topic flights-java",
        "org.apache.kafka.tools.TopicCommand --alter --topic flights-java --partitions 3",
        "kafka.admin.ConfigCommand --alter --topic flights-java --add-config retention.ms=60000",
        "kafka.admin.ConfigCommand --describe --entity-type topics --entity-name flights-java",
        "org.apache.kafka.tools.LogDirsCommand --describe --topic-list flights-java",
        "org.apache.kafka.tools.TransactionsCommand list",
        "org.apache.kafka.tools.LeaderElectionCommand --election-type preferred --all-topic-partitions",
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand --list",
        "org.apache.kafka.tools.TopicCommand --delete --topic flights-java",
    ):
        words = line.format(servers=servers).split()
        if "ProducerPerformance" not in line:
            words[1:1] = ["--bootstrap-server", servers]
        command = [
            java.find().command,
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{os.environ['ANABRANCH_KAFKA_JARS']}/*",
            *words,
        ]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=30)
        except subprocess.TimeoutExpired:
            print(f"  took too long: {line}")
            continue
        if ran.returncode:
            print(f"  failed: {line}\n  {(ran.stdout + ran.stderr).strip()[:300]}")


def _quietly(call: Callable[[], Any]) -> None:
    try:
        call()
    except Exception as error:
        print(f"  {type(error).__name__}: {str(error)[:160]}")


CLIENTS: dict[str, tuple[Callable[[str], None], Callable[[], bool]]] = {
    "confluent-kafka": (confluent, lambda: True),
    "librdkafka-0.9": (librdkafka_0_9, lambda: True),
    "aiokafka": (aiokafka, lambda: True),
    "kafka-python": (kafka_python, lambda: True),
    "kafka-python-0.10": (kafka_python_0_10, lambda: True),
    "kafkajs": (kafkajs, lambda: bool(os.environ.get("KAFKAJS")) and shutil.which("node") is not None),
    "kafka": (kafka_tools, lambda: bool(os.environ.get("ANABRANCH_KAFKA_JARS")) and java.why_missing() is None),
}


async def record(names: list[str]) -> None:
    """Run the clients one after the other, and store their exchanges."""
    recorder = Recorder()
    await recorder.start()
    with socket.socket() as free:  # the node reaches itself through the proxy, which has to know its port before
        free.bind(("127.0.0.1", 0))
        recorder.node_port = free.getsockname()[1]
    async with Cluster(1, port=recorder.node_port) as cluster:
        await cluster.crash_broker(1)
        await cluster.start_broker(1, {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{recorder.port}"})
        for name in names:
            run, at_hand = CLIENTS[name]
            if not at_hand():
                print(f"{name}: NOT AT HAND, its frames stay as they are")
                continue
            print(name)
            recorder.exchanges.clear()
            await asyncio.to_thread(run, f"127.0.0.1:{recorder.port}")
            exchanges = recorder.take()
            save(name, exchanges)
            print(f"  {len(exchanges)} exchanges of {len({one.api for one in exchanges})} APIs")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    asyncio.run(record(sys.argv[1:] or list(CLIENTS)))
