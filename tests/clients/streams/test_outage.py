"""An instance endures an outage of the cluster for some minutes, and returns to its last commit. Method: a real cluster
whose only broker crashes; the clients of the instance repeat a request for a moment only.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from anabranch import Consumer, Producer
from anabranch.clients.authentication import AuthenticationFailed
from anabranch.clients.streams import streams
from anabranch.clients.streams.config import AT_LEAST_ONCE, EXACTLY_ONCE
from anabranch.clients.streams.outage import OUTAGE_S, Outage
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.clients.streams.world import counts, streams_world, until

TIMED_OUT = KafkaError(ErrorCode.REQUEST_TIMED_OUT)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients of an instance give up after a moment."""
    producer = partial(Producer, request_timeout_ms=300, delivery_timeout_ms=600, max_block_ms=300)
    monkeypatch.setattr(streams, "Producer", producer)
    monkeypatch.setattr(streams, "Consumer", partial(Consumer, request_timeout_ms=300))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
async def test_instance_goes_on_after_an_outage(
    guarantee: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        streams_world(tmp_path) as world,
        world.instance(counts(), processing_guarantee=guarantee, commit_interval_ms=300) as one,
    ):
        await world.feed(200)
        await world.counted(one)
        for _ in range(2):
            processed = one.processed
            await world.feed(200)
            await until(lambda: one.processed > processed, "it has something to commit")  # noqa: B023
            caplog.clear()
            await world.cluster.crash_broker(1)
            await until(lambda: "trying again" in caplog.text, "its clients have given up")
            await world.cluster.start_broker(1)
            await world.feed(200)
            await world.counted(one)


async def test_instance_that_is_stopped_while_a_commit_has_no_answer_ends_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome of the commit is unknown, so that the transaction cannot be aborted either."""
    monkeypatch.setattr(streams, "STOP_TIMEOUT_S", 0.3)
    async with streams_world(tmp_path) as world:
        one, ending = world.instance(counts()), asyncio.Event()
        await one.start()
        await world.feed(100)
        await world.counted(one)
        producer = one._committer._producer
        assert producer is not None
        commit = producer.commit_transaction

        async def crash_and_commit() -> None:
            await world.cluster.crash_broker(1)
            ending.set()
            await commit()

        monkeypatch.setattr(producer, "commit_transaction", crash_and_commit)
        await world.feed(1)
        await ending.wait()
        await one.stop()


def test_outage_is_endured_for_some_minutes_since_the_last_commit() -> None:
    one = Outage()
    one.endure(TIMED_OUT, 10, 3)
    one.endure(ConnectionError(), 10 + OUTAGE_S, 3)
    with pytest.raises(KafkaError):
        one.endure(TIMED_OUT, 11 + OUTAGE_S, 3)
    one.endure(TIMED_OUT, 11 + OUTAGE_S, 4)
    one.endure(TIMED_OUT, 12 + 2 * OUTAGE_S, 4)


@pytest.mark.parametrize(
    "error",
    [
        AuthenticationFailed("no"),
        KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        KafkaError(ErrorCode.CORRUPT_MESSAGE),
        KafkaError(ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_errors_that_a_retry_cannot_mend_end_the_instance(error: Exception) -> None:
    with pytest.raises(type(error)):
        Outage().endure(error, 10, 3)
