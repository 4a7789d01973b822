"""The permissions of each API are Kafka's: a real Kafka refuses and accepts the same.

Method: Kafka 3.9 with its AclAuthorizer and a listener that wants a password; the rows of
`tests/broker/handlers/authorization_rows.py`, asked by our own client, without rights, with some, and with all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from anabranch import Admin, NewTopic
from anabranch.broker.profiles.profile import profile_for
from anabranch.clients.connection import Connection
from anabranch.clients.security_config import make_security
from anabranch.runtime.sockets import free_ports
from tests.broker.handlers.authorization_rows import ROWS
from tests.broker.handlers.authorizing import ALICE, AUTHORIZER, LISTENER, REFUSALS, SMALL, Asking
from tests.broker.handlers.authorizing import coordinating as wait_until_coordinating
from tests.broker.handlers.test_refused_rows import ORDERS, orders, prepare
from tests.differential.kafka_server import KafkaCluster, why_absent
from tests.secured.certificates import plain_users

pytestmark = [pytest.mark.kafka_jars, pytest.mark.processes]
KAFKAS = set(profile_for("3.9").ranges) - {
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
}  # which it refuses unasked
PROPERTIES = {
    **plain_users(LISTENER, admin="a", alice="b"),
    **AUTHORIZER,
    **SMALL,
    "super.users": "User:admin;User:ANONYMOUS",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@pytest.fixture
async def asking() -> AsyncIterator[Asking]:
    if reason := why_absent():
        pytest.skip(f"NOT COMPARED WITH KAFKA: {reason}")
    (port,) = free_ports("127.0.0.1", 1)
    listener = f"{LISTENER}://127.0.0.1:{port}"
    async with (
        KafkaCluster(properties=PROPERTIES, listeners=[listener]) as kafka,
        Admin(kafka.bootstrap_servers) as admin,
    ):
        await admin.create_topics([NewTopic(name="t")])
        await wait_until_coordinating("127.0.0.1", port)
        alice = await Connection.open("127.0.0.1", port, client_id="alice", security=make_security(**ALICE))
        yield Asking(admin, alice)
        await alice.close()


async def test_the_rows_are_kafkas(asking: Asking) -> None:
    different = []
    for row in ROWS:
        if row.api not in KAFKAS:
            continue
        for count in range(len(row.needs) + 1):
            await asking.grant(*row.needs[:count])
            expected = {row.codes[count]} if count < len(row.codes) else set()
            try:
                async with asyncio.timeout(10):
                    refused = (await asking.ask(row)) & REFUSALS
            except (ConnectionError, TimeoutError) as error:
                different.append(f"{row} with {count} of its rights: {error!r}")
                break
            if refused != expected:
                different.append(f"{row} with {count} of its rights: {sorted(refused)}, not {sorted(expected)}")
    assert different == []


async def test_refused_rows_are_where_ours_are(asking: Asking) -> None:
    """Kafka keeps the accepted offsets of a group, and its topics, in a map without order."""
    await prepare(asking)
    found = await orders(asking)
    for api, version, _, expected in ORDERS:
        rows = found[f"{api} v{version}"]
        if api == "OffsetFetch":
            assert rows[-1] == expected[-1], api
        else:
            assert rows == expected, api
