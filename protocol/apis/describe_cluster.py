"""DescribeCluster (key 60), v0-v2, flexible from v0: brokers, controller and cluster id (KIP-700).

v1   whether brokers or controllers are asked for                        KIP-919
v2   brokers that are fenced, too                                        KIP-1073
"""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int8, Int16, Int32, Text, always, message, since


@message
class DescribeClusterRequest:
    include_cluster_authorized_operations: Boolean
    endpoint_type: Int8 = since(1, absent=1)
    """1: brokers; 2: controllers."""
    include_fenced_brokers: Boolean = since(2, absent=False)


@message
class DescribeClusterBroker:
    broker_id: Int32
    host: Text
    port: Int32
    rack: Text | None = always(absent=None)
    is_fenced: Boolean = since(2, absent=False)


@message
class DescribeClusterResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None = always(absent=None)
    endpoint_type: Int8 = since(1, absent=1)
    cluster_id: Text
    controller_id: Int32 = always(absent=-1)
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = always(absent=-2147483648)
