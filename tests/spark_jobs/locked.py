"""A broker with a listener that takes no password, which tests write by, and one for users."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from anabranch import Admin
from anabranch.spark_jobs import secured
from anabranch.spark_jobs.source_options import Client
from tests.secured.certificates import SCRAM_MODULE, files
from tests.spark_jobs.live import LiveCluster

LISTENER: Final = "SASL_SSL"
MECHANISM: Final = "SCRAM-SHA-256"
PASSWORD: Final = "planted-for-the-stream"


@contextlib.contextmanager
def locked_cluster(password: str = PASSWORD) -> Iterator[LiveCluster]:
    """Run one broker, with the user alice."""
    properties = {
        **files().properties,
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": MECHANISM,
        f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    }
    addresses = ["PLAINTEXT://127.0.0.1:0", f"{LISTENER}://127.0.0.1:0"]
    with LiveCluster(1, listeners=addresses, properties=properties) as cluster:

        async def welcome() -> None:
            async with Admin(cluster.servers) as admin:
                await admin.set_password("alice", password)

        cluster.run(welcome())
        yield cluster


def client_of(password: str = PASSWORD, /, **more: str) -> Client:
    """Return the properties by which alice logs in."""
    return secured.of(
        {
            "security.protocol": LISTENER,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(files().ca),
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{SCRAM_MODULE} required username="alice" password="{password}";',
            "client.id": "left alone",
            **more,
        }
    )
