"""Sets subscriptions like an administrator."""

from __future__ import annotations

from typing import Any

from anabranch.broker.administration.config_alterations import CLIENT_METRICS, DELETE, SET
from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import until

NAMES = ("interval.ms", "match", "metrics")


async def alter(cluster: Cluster, name: str, **configs: str) -> Any:
    """Replace a subscription; without settings, remove it."""
    given = {key.replace("_", "."): value for key, value in configs.items()}
    rows = [
        AlterableConfig(name=key, config_operation=SET if key in given else DELETE, value=given.get(key))
        for key in dict.fromkeys((*NAMES, *given))
    ]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=rows)
    connection = await Connection.open(*cluster.address(1), client_id="admin")
    try:
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        return (await connection.call(request)).responses[0]
    finally:
        await connection.close()


async def subscribe(cluster: Cluster, name: str, **configs: str) -> None:
    """The same, and every broker goes by it."""
    answer = await alter(cluster, name, **configs)
    assert answer.error_code == ErrorCode.NONE, answer
    given = {key.replace("_", "."): value for key, value in configs.items()}
    for node in cluster.nodes.values():
        await until(lambda known=node.services.client_metrics: known.of(name) == given)
