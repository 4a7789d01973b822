"""Features in a cluster: registered, finalized, in ApiVersions; and refused updates."""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Admin, NewTopic
from anabranch.broker.config.broker_settings import ConfigError
from anabranch.cluster.in_process import Cluster
from anabranch.controller import features
from anabranch.controller.zk import paths, znodes
from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from anabranch.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.anabranch.cluster.test_in_process import active_controller, ask

pytestmark = pytest.mark.timeout(60)


NAME = "test.feature"


def update(level: int, *, kind: int = features.UPGRADE, name: str = NAME) -> FeatureUpdateKey:
    return FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)


async def send(cluster: Cluster, *updates: FeatureUpdateKey, validate_only: bool = False) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(feature_updates=list(updates), validate_only=validate_only)
    response: UpdateFeaturesResponse = await ask(cluster, active_controller(cluster), request)
    return response


def level_on(cluster: Cluster, node_id: int) -> int:
    return cluster.nodes[node_id].services.features.level(NAME)


async def until_finalized(cluster: Cluster, level: int) -> None:
    while any(level_on(cluster, node_id) != level for node_id in cluster.nodes):  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def test_feature_is_finalized_and_downgraded(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Cluster(2) as cluster:
        assert level_on(cluster, 1) == 0, "no broker supported anything when the cluster began"
        monkeypatch.setitem(features.SUPPORTED, NAME, (1, 3))
        refused = await send(cluster, update(2))
        assert "incompatible versions for the feature: [1, 2]" in (refused.results[0].error_message or "")
        for node_id in (1, 2):
            await cluster.stop_broker(node_id)
            await cluster.start_broker(node_id)
        assert (await send(cluster, update(2), validate_only=True)).results[0].error_code == 0
        assert level_on(cluster, 1) == 0
        assert (await send(cluster, update(2))).results[0].error_code == 0
        await until_finalized(cluster, 2)
        response = await ask(cluster, 2, ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
        assert {row.name: (row.min_version, row.max_version) for row in response.supported_features}[NAME] == (1, 3)
        assert {row.name: row.max_version_level for row in response.finalized_features}[NAME] == 2
        assert response.finalized_features_epoch == 1
        assert (await send(cluster, update(0, kind=features.SAFE_DOWNGRADE))).results[0].error_code == 0
        await until_finalized(cluster, 0)


async def test_invalid_feature_update_is_refused_with_its_effect_on_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(features.SUPPORTED, NAME, (1, 3))
    async with Cluster(1) as cluster:
        await until_finalized(cluster, 3)  # the first controller finalizes what everybody supports
        wrong = {
            "Feature name can not be empty": update(1, name=""),
            "unknown upgrade type": update(1, kind=0),
            "less than 1 without a downgrade type": update(0),
            "non-existing finalized feature": update(0, kind=features.SAFE_DOWNGRADE, name="other"),
            "to the same value": update(3),
            "without a downgrade type of SAFE": update(2),
            "would be an upgrade": update(4, kind=features.SAFE_DOWNGRADE),
            "is not supported": update(1, name="other"),
            "outside the supported levels": update(4),
        }
        for says, one in wrong.items():
            (row,) = (await send(cluster, one)).results
            assert row.error_code == ErrorCode.INVALID_REQUEST and says in (row.error_message or ""), says
        rows = (await send(cluster, update(1, name="other"), update(1, kind=features.SAFE_DOWNGRADE))).results
        assert [row.error_code for row in rows] == [ErrorCode.INVALID_REQUEST, 0]
        await until_finalized(cluster, 1)
        old = UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey(feature=NAME, max_version_level=0, allow_downgrade=True)]
        )
        assert (await ask(cluster, 1, old, 0)).results[0].error_code == 0
        await until_finalized(cluster, 0)


async def test_feature_update_at_another_broker_is_not_controller() -> None:
    async with Cluster(2) as cluster:
        other = 3 - active_controller(cluster)
        response = await ask(cluster, other, UpdateFeaturesRequest(feature_updates=[update(1)]))
        assert (response.error_code, response.results) == (ErrorCode.NOT_CONTROLLER, [])


async def test_node_without_a_finalized_feature_stops() -> None:
    async with Cluster(1) as cluster:
        node = cluster.nodes[1]
        await node.session.set(paths.FEATURE, znodes.encode_feature({"from.the.future": 1}))
        with pytest.raises(ConfigError, match=r"from\.the\.future at level 1"):
            await node.failed


async def test_resize_after_a_rolling_upgrade_needs_the_finalized_feature() -> None:
    """Old brokers are replaced one by one; then the feature is finalized (R17)."""
    old = {"withheld.features": features.RESHARD}

    async def grow(cluster: Cluster, count: int) -> str:
        async with Admin(cluster.bootstrap_servers) as admin:
            try:
                await admin.create_partitions("t", count)
            except KafkaError as error:
                assert error.code == ErrorCode.UNSUPPORTED_VERSION
                return error.message
        return ""

    async def finalize(cluster: Cluster) -> ErrorCode:
        return ErrorCode((await send(cluster, update(1, name=features.RESHARD))).results[0].error_code)

    async with Cluster(2, properties=old) as cluster:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name="t", partitions=2)])
        assert "Brokers [1, 2] do not support" in await grow(cluster, 4)
        for node_id, behind in ((1, "[2]"), (2, "")):
            assert await finalize(cluster) == ErrorCode.INVALID_REQUEST
            await cluster.stop_broker(node_id)
            await cluster.start_broker(node_id, {"withheld.features": ""})
            assert f"Brokers {behind}" in await grow(cluster, 4) or not behind
        assert "not finalized" in await grow(cluster, 4)
        assert await finalize(cluster) == ErrorCode.NONE
        assert await grow(cluster, 4) == ""
