"""Produce: record batches, their validation, idempotence."""

from __future__ import annotations

from anabranch.protocol.apis.init_producer_id import InitProducerIdRequest
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.differential.case import NOW_MS, Run, batch, case, produce

HOUR_MS = 3_600_000


@case("Produce", "3-11")
async def batches(run: Run) -> None:
    await run.create(name := run.name())
    for acks in (-1, 1):
        await run.ask(produce(name, batch(b"a"), acks=acks))
        await run.ask(produce(name, batch(b"b", b"c", None), acks=acks))


@case("Produce", "3-11")
async def codecs(run: Run) -> None:
    await run.create(name := run.name())
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        await run.ask(produce(name, batch(b"a" * 500, b"b" * 500, codec=codec)))


@case("Produce", "3-11")
async def to_what_is_not_there(run: Run) -> None:
    await run.create(name := run.name())
    await run.ask(produce(name, batch(b"a"), partition=1))
    await run.ask(produce(name, batch(b"a"), partition=-1))
    await run.ask(produce(run.name("none"), batch(b"a")))
    await run.ask(produce("not a name", batch(b"a")))


@case("Produce", "3-11")
async def bad_acks(run: Run) -> None:
    await run.create(name := run.name())
    for acks in (2, -2, 100):
        await run.ask(produce(name, batch(b"a"), acks=acks))


@case("Produce", "3-11")
async def several_partitions(run: Run) -> None:
    await run.create(name := run.name(), partitions=2)
    data = [PartitionProduceData(index=index, records=batch(b"a")) for index in (1, 0, 5)]
    topics = [
        TopicProduceData(name=name, partition_data=data),
        TopicProduceData(name=run.name("none"), partition_data=data[:1]),
    ]
    await run.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics))
    await run.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[]))
    await run.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=name, partition_data=[])]))


@case("Produce", "3-11")
async def unsound_batches(run: Run) -> None:
    await run.create(name := run.name())
    good = batch(b"value")
    flipped = bytearray(good)
    flipped[-1] ^= 1
    shorter = bytearray(good)
    shorter[11] -= 1
    for records in (
        b"",
        bytes(flipped),
        bytes(shorter),
        good[:-1],
        good[:20],
        good + b"\0" * 5,
        good + good,
        bytes(70),
    ):
        await run.ask(produce(name, records))


def patched(data: bytes, position: int, value: bytes) -> bytes:
    """A batch with some header bytes replaced and a checksum that fits."""
    from anabranch.protocol.records.crc32c import crc32c

    changed = bytearray(data)
    changed[position : position + len(value)] = value
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


@case("Produce", "3-11")
async def odd_headers(run: Run) -> None:
    await run.create(name := run.name())
    good = batch(b"a", b"b")
    for position, value in (
        (0, (7).to_bytes(8, "big")),  # base offset: only counts, 7 is not 0
        (12, (5).to_bytes(4, "big")),  # leader epoch: whatever it says
        (16, b"\x03"),  # magic
        (21, (0x20).to_bytes(2, "big")),  # control
        (21, (0x10).to_bytes(2, "big")),  # transactional without a producer
        (21, (0x08).to_bytes(2, "big")),  # log append time
        (21, (0x05).to_bytes(2, "big")),  # unknown codec
        (21, (0x40).to_bytes(2, "big")),  # delete horizon
        (21, (0x80).to_bytes(2, "big")),  # unused bit
        (23, (5).to_bytes(4, "big")),  # last offset delta
        (23, (-1).to_bytes(4, "big", signed=True)),
        (57, (3).to_bytes(4, "big")),  # record count
        (57, (1).to_bytes(4, "big")),
        (57, (0).to_bytes(4, "big")),
        (57, (-1).to_bytes(4, "big", signed=True)),
        (43, (5).to_bytes(8, "big")),  # a producer id without an epoch
    ):
        await run.ask(produce(name, patched(good, position, value)))


@case("Produce", "3-11")
async def odd_records(run: Run) -> None:
    """Batches with a valid header and checksum, and malformed records."""
    from anabranch.protocol.records.batch import HEADER_BYTES
    from tests.broker.storage.batches import batch_of

    await run.create(name := run.name())
    one = batch(b"value")[HEADER_BYTES:]
    two = batch(b"a", b"b")[HEADER_BYTES:]
    for content, count in (
        (one, 1000),
        (one, 2**31 - 1),
        (one + one, 1),
        (one[:-1], 1),
        (one + bytes(1), 1),
        (b"", 1),
        (b"\xff" * 70, 1),
        (bytes((one[0] - 2,)) + one[1:], 1),
        (bytes((one[0] + 40,)) + one[1:], 1),
        (b"\x01" + one[1:], 1),
        (one[:-1] + b"\x01", 1),
        (one[:-1] + b"\x7e", 1),
        (two, 2),
    ):
        await run.ask(produce(name, batch_of(content, count)))
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        for content, count in ((one, 1000), (one + one, 1), (one[:-1], 1), (b"\xff" * 70, 1), (two, 2)):
            await run.ask(produce(name, batch_of(content, count, codec)))
        for packed in (b"nonsense" * 9, b"\xff" * 70):
            await run.ask(produce(name, batch_of(b"", 1, codec, packed=packed)))
    await run.ask(produce(name, batch(b"a")))


@case("Produce", "3-11")
async def odd_offsets(run: Run) -> None:
    """Records that do not count from 0: Kafka lets them in, or fails where they are compressed."""
    from anabranch.protocol.records.batch import HEADER_BYTES
    from tests.broker.storage.batches import batch_of

    await run.create(name := run.name())
    one, two = batch(b"value")[HEADER_BYTES:], batch(b"a", b"b")[HEADER_BYTES:]
    await run.ask(produce(name, batch_of(one * 2, 2)))
    await run.ask(produce(name, batch_of(two.replace(b"\0\x02\x02", b"\0\x02\x04"), 2, "lz4")))


@case("Produce", "3-11")
async def too_large(run: Run) -> None:
    await run.create(name := run.name(), configs={"max.message.bytes": "200"})
    await run.ask(produce(name, batch(b"a" * 50)))
    await run.ask(produce(name, batch(b"a" * 500)))
    await run.ask(produce(name, batch(b"a" * 500, codec="gzip")))


@case("Produce", "3-11")
async def to_a_compacted_topic(run: Run) -> None:
    await run.create(name := run.name(), configs={"cleanup.policy": "compact"})
    await run.ask(produce(name, batch(b"a", b"b")))
    await run.ask(produce(name, batch(b"a", key=None)))
    await run.ask(produce(name, batch(b"a", b"b", key=None)))


@case("Produce", "3-11")
async def timestamps(run: Run) -> None:
    limits = {"message.timestamp.before.max.ms": str(HOUR_MS), "message.timestamp.after.max.ms": str(HOUR_MS)}
    await run.create(name := run.name("bounded"), configs=limits)
    for distance_ms in (0, -2 * HOUR_MS, 2 * HOUR_MS):
        await run.ask(produce(name, batch(b"a", at_ms=NOW_MS + distance_ms)))
    await run.ask(produce(name, batch(b"a", b"b", at_ms=-1)))
    await run.create(name := run.name("free"))
    for at_ms in (-1, 0, NOW_MS + 100 * HOUR_MS):
        await run.ask(produce(name, batch(b"a", at_ms=at_ms)))


@case("Produce", "3-11")
async def log_append_time(run: Run) -> None:
    """The answer names the time; whether it does has to agree."""
    await run.create(name := run.name(), configs={"message.timestamp.type": "LogAppendTime"})
    await run.ask(produce(name, batch(b"a", b"b")))


@case("Produce", "3-11")
async def min_isr(run: Run) -> None:
    await run.create(name := run.name(), configs={"min.insync.replicas": "2"})
    await run.ask(produce(name, batch(b"a")))
    await run.ask(produce(name, batch(b"a"), acks=1))


@case("Produce", "3-11")
async def idempotence(run: Run) -> None:
    await run.create(name := run.name())
    init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    made = await run.settled(init, lambda answer: answer.error_code == 0)

    async def send(epoch: int, sequence: int, *values: bytes, producer_id: int = made.producer_id) -> None:
        await run.ask(produce(name, batch(*values, producer=(producer_id, epoch, sequence))))

    await send(0, 0, b"a", b"b")
    await send(0, 2, b"c")
    await send(0, 2, b"c")  # again
    await send(0, 0, b"a", b"b")  # again, older
    await send(0, 1, b"b")  # overlaps
    await send(0, 5, b"x")  # a gap
    for place in range(6):
        await send(0, 3 + place, b"n")
    await send(0, 0, b"a", b"b")  # too old to be remembered
    await send(1, 7, b"x")  # a new epoch begins at 0
    await send(1, 0, b"x")
    await send(0, 9, b"x")  # fenced
    await send(0, 0, b"first", producer_id=made.producer_id + 500)
    await send(0, 7, b"first", producer_id=made.producer_id + 501)
    await send(3, 4, b"first", producer_id=made.producer_id + 502)


@case("Produce", "3-11")
async def wrapped_sequence(run: Run) -> None:
    await run.create(name := run.name())
    last = 2**31 - 1
    for sequence, values in ((0, (b"a",)), (last - 1, (b"b", b"c"))):
        await run.ask(produce(name, batch(*values, producer=(40_000_000, 0, sequence))))
    await run.ask(produce(name, batch(b"a", producer=(40_000_001, 0, last))))
    await run.ask(produce(name, batch(b"b", b"c", producer=(40_000_001, 0, 0))))


@case("Produce", "3-11")
async def transactional_without_transaction(run: Run) -> None:
    await run.create(name := run.name())
    records = batch(b"a", producer=(50_000_000, 0, 0), transactional=True)
    await run.ask(produce(name, records, transactional_id=run.name("tid")))
    await run.ask(produce(name, records))


@case("Produce", "0-2")
async def batches_in_old_versions(run: Run) -> None:
    await run.create(name := run.name())
    await run.ask(produce(name, batch(b"a")))


@case("Produce", "0-6")
async def zstd_in_old_versions(run: Run) -> None:
    await run.create(name := run.name())
    await run.ask(produce(name, batch(b"a", codec="zstd")))


@case("Produce", "3-11")
async def to_internal_topics(run: Run) -> None:
    await run.ask(produce("__consumer_offsets", batch(b"a")))
    await run.ask(produce("__transaction_state", batch(b"a")))


def message(value: bytes, *, magic: int, offset: int = 0, key: bytes | None = b"k", attributes: int = 0) -> bytes:
    """One message of a message set of format 0 or 1."""
    import struct
    import zlib

    head = struct.pack(">bb", magic, attributes) + (struct.pack(">q", NOW_MS) if magic else b"")
    body = head + (struct.pack(">i", -1) if key is None else struct.pack(">i", len(key)) + key)
    body += struct.pack(">i", len(value)) + value
    body = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(body)) + body


@case("Produce", "0-3")
async def message_sets(run: Run) -> None:
    await run.create(name := run.name())
    for magic in (0, 1):
        await run.ask(produce(name, message(b"a", magic=magic)))
        await run.ask(produce(name, b"".join(message(b"%d" % n, magic=magic, offset=n) for n in range(3))))
        broken = bytearray(message(b"a", magic=magic))
        broken[-1] ^= 1
        await run.ask(produce(name, bytes(broken)))
    await run.ask(produce(name, message(b"a", magic=0) + message(b"a", magic=1, offset=1)))


@case("Produce", "0-2")
async def message_sets_wrapped(run: Run) -> None:
    import gzip

    await run.create(name := run.name())
    for magic in (0, 1):
        inner = b"".join(message(b"%d" % n, magic=magic, offset=n) for n in range(3))
        await run.ask(produce(name, message(gzip.compress(inner), magic=magic, offset=2, key=None, attributes=1)))
        await run.ask(produce(name, message(inner, magic=magic, offset=2, key=None, attributes=1)))
