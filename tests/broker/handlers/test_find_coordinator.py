"""FindCoordinator on a real broker: order of checks, and responses before metadata."""

from __future__ import annotations

import logging

import pytest

from anabranch.broker.metadata.metadata_cache import ClusterImage
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.errors import ErrorCode
from tests.anabranch.cluster.test_in_process import ask


@pytest.mark.parametrize(("kafka", "share"), [("3.9", 15), ("4.1", 42)])
async def test_unknown_key_type_is_refused_as_by_kafka(kafka: str, share: int) -> None:
    """Without share groups, Kafka 3.9 does not parse the key of a share partition; 4.1 does."""
    refused = {(5, 2): 42, (6, 2): share, (5, 9): 42, (6, 9): 42, (6, -1): 42}
    async with Cluster(1, kafka=kafka) as cluster:
        for (version, key_type), code in refused.items():
            request = FindCoordinatorRequest(coordinator_keys=["a"], key_type=key_type)
            answer = (await ask(cluster, 1, request, version=version)).coordinators[0]
            assert (answer.node_id, answer.error_code) == (-1, code), (version, key_type)


async def test_broker_without_metadata_does_not_try_to_create_the_topic(caplog: pytest.LogCaptureFixture) -> None:
    async with Cluster(1) as cluster:
        metadata = cluster.nodes[1].services.metadata
        loaded, metadata.image = metadata.image, ClusterImage()
        request = FindCoordinatorRequest(coordinator_keys=["a"])
        with caplog.at_level(logging.INFO):
            answer = (await ask(cluster, 1, request, version=4)).coordinators[0]
        metadata.image = loaded
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "cannot create" not in caplog.text
