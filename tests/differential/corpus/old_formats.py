"""Produce v0 to v2 and Fetch v0 to v3: message sets, conversions, and refusals."""

from __future__ import annotations

from anabranch.protocol.records.compression import Compression, compress
from anabranch.protocol.records.message_set import Message, build_message, build_wrapper
from tests.differential.case import NOW_MS, Run, batch, case, produce
from tests.differential.corpus.consume import fetch, id_of

CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)


def message(number: int = 0, magic: int = 1, *, key: bytes | None = b"key", attributes: int = 0) -> Message:
    """A message with its place as its time."""
    return Message(number, magic, attributes, NOW_MS + number if magic else -1, key, b"value-%d" % number)


def message_set(count: int = 3, magic: int = 1, codec: int = 0, key: bytes | None = b"key") -> bytes:
    """Plain, or in a wrapper."""
    messages = [message(number, magic, key=key) for number in range(count)]
    return build_wrapper(messages, codec) if codec else b"".join(map(build_message, messages))


def wrapping(content: bytes, codec: int = Compression.GZIP, magic: int = 1) -> bytes:
    """A wrapper around anything."""
    value = compress(codec, content) if codec <= max(Compression) else content
    return build_message(Message(2, magic, codec, NOW_MS, None, value))


@case("Produce", "0-2")
async def old_message_sets(run: Run) -> None:
    await run.create(name := run.name())
    for magic in (0, 1):
        for codec in CODECS:
            await run.ask(produce(name, message_set(magic=magic, codec=codec)))
    topic_id = await id_of(run, name)
    for offset in (0, 5, 11, 23):
        await run.ask(fetch(name, topic_id, (0, offset)))


@case("Produce", "0-2")
async def batches_in_old_requests(run: Run) -> None:
    await run.create(name := run.name())
    for records in (batch(b"a"), batch(b"a", codec="zstd"), batch(b"a") + batch(b"b")):
        await run.ask(produce(name, records))


@case("Produce", "3-11")
async def message_sets_in_new_requests(run: Run) -> None:
    await run.create(name := run.name())
    for magic in (0, 1):
        await run.ask(produce(name, message_set(magic=magic)))


@case("Produce", "0-2")
async def unsound_message_sets(run: Run) -> None:
    await run.create(name := run.name())
    good, wrapper = message_set(), message_set(codec=Compression.GZIP)
    for records in (
        good[:-1] + b"x",
        wrapper[:-1] + b"x",
        wrapping(good[:-1] + b"x"),
        good[:11] + b"\x0d" + good[12:],
        good + message_set(magic=0),
        good + batch(b"a"),
        wrapper + wrapper,
        good + wrapper,
        wrapping(message_set(magic=0)),
        wrapping(wrapper),
        wrapping(b""),
        build_message(Message(0, 1, 1, NOW_MS, None, None)),
        wrapping(good, Compression.ZSTD),
        wrapping(good, 5),
        good + good[:-5],
        build_message(message(attributes=8)),
        build_message(message(attributes=8)._replace(timestamp_ms=-1)),
    ):
        await run.ask(produce(name, records))


@case("Produce", "0-2")
async def message_sets_of_a_topic_with_rules(run: Run) -> None:
    await run.create(small := run.name("small"), configs={"max.message.bytes": "100"})
    await run.ask(produce(small, message_set(1)))
    await run.ask(produce(small, message_set(3)))
    await run.create(compacted := run.name("compacted"), configs={"cleanup.policy": "compact"})
    await run.ask(produce(compacted, message_set(key=None)))
    await run.ask(produce(compacted, message_set()))
    await run.create(stamped := run.name("stamped"), configs={"message.timestamp.type": "LogAppendTime"})
    await run.ask(produce(stamped, message_set(magic=0)))
    await run.ask(produce(stamped, build_message(message(attributes=8))))
    await run.create(strict := run.name("strict"), configs={"message.timestamp.before.max.ms": "1000"})
    await run.ask(produce(strict, message_set(magic=0)))
    await run.ask(produce(strict, message_set(magic=1)))


@case("Fetch", "0-4")
async def batches_for_old_consumers(run: Run) -> None:
    await run.create(name := run.name())
    topic_id = await id_of(run, name)
    await run.append(name, batch(b"a", None, b"c"))
    await run.append(name, batch(b"d", b"e", key=None))
    for offset in (0, 1, 3, 4, 5, 6):
        await run.ask(fetch(name, topic_id, (0, offset)))
    await run.ask(fetch(name, topic_id, (0, 0), size=20))


@case("Fetch", "0-10")
async def zstd_for_old_consumers(run: Run) -> None:
    await run.create(name := run.name(), configs={"compression.type": "zstd"})
    topic_id = await id_of(run, name)
    await run.ask(fetch(name, topic_id, (0, 0)))
    await run.append(name, batch(b"a"))
    await run.ask(fetch(name, topic_id, (0, 0)))
    await run.ask(fetch(name, topic_id, (0, 7)))
    await run.create(chosen := run.name("chosen"))
    topic_id = await id_of(run, chosen)
    await run.append(chosen, batch(b"a"))
    await run.append(chosen, batch(b"b", codec="zstd"))
    await run.ask(fetch(chosen, topic_id, (0, 1)))


@case("Fetch", "0-4")
async def conversion_forbidden(run: Run) -> None:
    await run.create(name := run.name(), configs={"message.downconversion.enable": "false"})
    topic_id = await id_of(run, name)
    await run.ask(fetch(name, topic_id, (0, 0)))
    await run.append(name, batch(b"a"))
    for offset in (0, 1, 2):
        await run.ask(fetch(name, topic_id, (0, offset)))
