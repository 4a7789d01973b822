"""GetTelemetrySubscriptions, PushTelemetry, with fixed client instance ids.

Intervals are long, so that nothing here depends on how fast a cluster answers.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from typing import Any, Final

from anabranch.controller.zk.znodes import uuid_to_text
from anabranch.protocol.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from anabranch.protocol.apis.push_telemetry import PushTelemetryRequest
from anabranch.protocol.wire import ZERO_UUID
from tests.differential.case import Run, case
from tests.differential.corpus.configs import CLIENT_METRICS, DELETE, SET, change

SOON_MS: Final = "200000"
MARKS: Final[Iterator[int]] = itertools.count()
MAX_BYTES: Final = 1 << 20


def id_of(run: Run, client: str) -> bytes:
    """The id of a client, the same on both clusters."""
    return uuid.uuid5(uuid.NAMESPACE_URL, run.name(client)).bytes


def get(client_instance_id: bytes) -> GetTelemetrySubscriptionsRequest:
    return GetTelemetrySubscriptionsRequest(client_instance_id=client_instance_id)


async def subscribe(run: Run, name: str, **configs: str | None) -> None:
    """Change a subscription, and wait until the broker applies it, by a later one for one client."""
    changes = [
        (DELETE if value is None else SET, key.replace("_", "."), value) for key, value in sorted(configs.items())
    ]
    await run.prepare(change(CLIENT_METRICS, name, *changes), version=1)
    marker, mark = id_of(run, "marker"), f"mark-{next(MARKS)}."
    about = (SET, "match", f"client_instance_id={uuid_to_text(marker)}")
    await run.prepare(change(CLIENT_METRICS, "marker", (SET, "metrics", mark), about), version=1)
    await run.settled(get(marker), lambda answer: mark in answer.requested_metrics, version=0)


async def unsubscribe(run: Run, *names: str) -> None:
    """Take subscriptions away."""
    for name in names:
        await subscribe(run, name, interval_ms=None, match=None, metrics=None)


async def push(run: Run, client: str, subscription_id: int, **changed: Any) -> Any:
    """Push, and compare the answer."""
    said = {"terminating": False, "compression_type": 0, "metrics": b"OTLP"} | changed
    return await run.ask(
        PushTelemetryRequest(client_instance_id=id_of(run, client), subscription_id=subscription_id, **said)
    )


async def id_wanted(run: Run, client: str) -> int:
    """The id of what a client is asked for."""
    found: int = (await run.ask(get(id_of(run, client)), version=0)).subscription_id
    return found


@case("GetTelemetrySubscriptions", alone=True, kafka="4.0")
async def nothing_is_wanted(run: Run) -> None:
    await run.ask(get(id_of(run, "a")))
    await run.ask(get(id_of(run, "a")))
    await run.ask(get(id_of(run, "b")))


@case("GetTelemetrySubscriptions", alone=True, kafka="4.0")
async def what_is_wanted_changes(run: Run) -> None:
    await subscribe(run, "one", metrics="org.apache.kafka.producer.")
    await run.ask(get(id_of(run, "a")))
    await run.ask(get(id_of(run, "a")))
    only_a = f"client_instance_id={uuid_to_text(id_of(run, 'a'))}"  # for `*` would hide the mark
    await subscribe(run, "one", metrics="*", interval_ms=SOON_MS, match=only_a)
    await run.ask(get(id_of(run, "a")))
    await subscribe(run, "two", metrics="org.apache.kafka.consumer.", interval_ms="3600000")
    await run.ask(get(id_of(run, "a")))
    await unsubscribe(run, "one", "two", "marker")
    await run.ask(get(id_of(run, "a")))


@case("GetTelemetrySubscriptions", alone=True, kafka="4.0")
async def who_is_meant(run: Run) -> None:
    for number, match in enumerate(
        (
            "client_id=nobody",
            "client_id=corp",
            "client_id=c.*s",
            "client_source_address=127.0.0.1",
            "client_source_address=127.0",
            "client_source_port=[0-9]+",
            "client_software_name=anabranch",
            "client_software_version=none",
            "client_id=corpus, client_software_name=other",
            "client_id=nobody,client_id=corpus",
            "client_instance_id=[A-Za-z0-9_-]{22}",
        )
    ):
        await subscribe(run, "some", metrics="m.", match=match)
        await run.ask(get(id_of(run, f"client-{number}")))
    await unsubscribe(run, "some", "marker")


@case("PushTelemetry", alone=True, kafka="4.0")
async def pushed(run: Run) -> None:
    await subscribe(run, "one", metrics="m.", interval_ms=SOON_MS)
    wanted = await id_wanted(run, "a")
    await push(run, "a", wanted)
    await push(run, "a", wanted)
    await push(run, "a", wanted, terminating=True)
    await push(run, "a", wanted, terminating=True)
    await push(run, "a", wanted)
    await push(run, "a", wanted, terminating=True)
    await unsubscribe(run, "one", "marker")


@case("PushTelemetry", alone=True, kafka="4.0")
async def pushed_without_asking(run: Run) -> None:
    await push(run, "a", 0)
    await push(run, "a", 0)
    await run.ask(get(id_of(run, "a")), version=0)
    await run.ask(get(id_of(run, "a")), version=0)
    for reserved in (ZERO_UUID, bytes(15) + b"\1"):
        await run.ask(
            PushTelemetryRequest(
                client_instance_id=reserved, subscription_id=0, terminating=False, compression_type=0, metrics=b""
            )
        )


@case("PushTelemetry", alone=True, kafka="4.0")
async def pushed_what_is_not_taken(run: Run) -> None:
    for client, changed in (
        ("compression", {"compression_type": 5}),
        ("negative", {"compression_type": -1}),
        ("large", {"metrics": bytes(MAX_BYTES + 1)}),
        ("largest", {"metrics": bytes(MAX_BYTES)}),
        ("empty", {"metrics": b""}),
        ("nonsense", {"compression_type": 4}),
        ("both", {"compression_type": 5, "metrics": bytes(MAX_BYTES + 1)}),
    ):
        wanted = await id_wanted(run, client)
        await push(run, client, wanted, **changed)
        await run.ask(get(id_of(run, client)), version=0)
        await push(run, client, wanted)
        await push(run, f"{client}-2", wanted, **changed)


@case("PushTelemetry", alone=True, kafka="4.0")
async def pushed_after_a_change(run: Run) -> None:
    wanted = await id_wanted(run, "a")
    await push(run, "a", wanted)
    await subscribe(run, "one", metrics="m.", interval_ms=SOON_MS)
    await push(run, "a", wanted)
    again = await id_wanted(run, "a")
    await push(run, "a", again)
    await push(run, "a", again, terminating=True)
    await unsubscribe(run, "one", "marker")
    await push(run, "a", again)
