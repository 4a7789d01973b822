"""ApiVersions (key 18), v0-v4, flexible from v3.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Boolean, Int16, Int32, Int64, Text, since, tagged


@dataclass(slots=True, kw_only=True)
class ApiVersionsRequest:
    client_software_name: Text = since(3, absent="")
    client_software_version: Text = since(3, absent="")


@dataclass(slots=True, kw_only=True)
class ApiVersion:
    api_key: Int16
    min_version: Int16
    max_version: Int16


@dataclass(slots=True, kw_only=True)
class SupportedFeatureKey:
    name: Text
    min_version: Int16
    max_version: Int16


@dataclass(slots=True, kw_only=True)
class FinalizedFeatureKey:
    name: Text
    max_version_level: Int16
    min_version_level: Int16


@dataclass(slots=True, kw_only=True)
class ApiVersionsResponse:
    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = since(1, absent=0)
    supported_features: list[SupportedFeatureKey] = tagged(0, since=3, absent=list)
    finalized_features_epoch: Int64 = tagged(1, since=3, absent=-1)
    finalized_features: list[FinalizedFeatureKey] = tagged(2, since=3, absent=list)
    zk_migration_ready: Boolean = tagged(3, since=3, absent=False)
