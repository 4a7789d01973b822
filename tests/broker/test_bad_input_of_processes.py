"""Mutated frames leave a cluster of processes alive and with its records, with either ZooKeeper.

Method: the frames of `test_bad_input`, against node processes whose state is in a ZooKeeper process. Creation of topics
by Metadata, which reaches ZooKeeper with the names of the frames, is on. ANABRANCH_FRAMES=n sends n of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.cluster.processes import ProcessCluster
from anabranch.state.data_directory import BUILT_IN, LOCAL
from tests.broker.mutated_frames import mutated_frames
from tests.broker.test_bad_input import ANSWER_TIMEOUT_S, INTRODUCTION

FRAMES = int(os.environ.get("ANABRANCH_FRAMES", "150"))
TOPIC = "victim"


def attack(port: int, frames: list[bytes]) -> None:
    """Send each frame on a connection of its own: the node must answer or close."""
    for raw in frames:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S) as sock,
            contextlib.suppress(ConnectionError),
        ):
            sock.sendall(INTRODUCTION + raw)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass


@pytest.mark.processes
@pytest.mark.parametrize(
    "zookeeper", [BUILT_IN, pytest.param(LOCAL, marks=[pytest.mark.zookeeper, pytest.mark.costly])]
)
async def test_mutated_frames_do_not_harm_a_cluster_of_processes(zookeeper: str) -> None:
    async with asyncio.timeout(600), ProcessCluster(2, zookeeper=zookeeper) as cluster:
        servers = cluster.bootstrap_servers
        async with Admin(servers) as admin, Producer(servers) as producer:
            await admin.create_topics([NewTopic(name=TOPIC, partitions=1, replication_factor=2)])
            await producer.send_and_wait(TOPIC, b"before")
            frames, half = mutated_frames(FRAMES), FRAMES // 2
            parts = zip(cluster.brokers, (frames[:half], frames[half:]), strict=True)
            await asyncio.gather(*(asyncio.to_thread(attack, one.port, part) for one, part in parts))
            await cluster.wait_brokers(2)
            await producer.send_and_wait(TOPIC, b"after")
            async with Consumer(TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
                assert [(await consumer.getone()).value for _ in range(2)] == [b"before", b"after"]
        for node in cluster.brokers:
            assert node.running
            log = node.log_path.read_text()
            assert "Traceback" not in log, log[-6000:]
