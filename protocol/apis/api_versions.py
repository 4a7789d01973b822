"""ApiVersions (key 18), v0-v4, flexible from v3: the APIs and versions that a node serves.

v1   throttle time
v3   name and version of the client; features of the cluster             KIP-511, KIP-584
v4   features that start at version 0 may be listed                      KIP-1022

Its answer always has the old response header, and a version that the broker does not know is answered in v0 with
UNSUPPORTED_VERSION: a client that guesses too high can still read what to use instead.
"""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int16, Int32, Int64, Text, message, since, tagged


@message
class ApiVersionsRequest:
    client_software_name: Text = since(3, absent="")
    client_software_version: Text = since(3, absent="")


@message
class ApiVersion:
    api_key: Int16
    min_version: Int16
    max_version: Int16


@message
class SupportedFeatureKey:
    name: Text
    min_version: Int16
    max_version: Int16


@message
class FinalizedFeatureKey:
    name: Text
    max_version_level: Int16
    min_version_level: Int16


@message
class ApiVersionsResponse:
    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = since(1, absent=0)
    supported_features: list[SupportedFeatureKey] = tagged(0, since=3, absent=list)
    finalized_features_epoch: Int64 = tagged(1, since=3, absent=-1)
    """-1: not known."""
    finalized_features: list[FinalizedFeatureKey] = tagged(2, since=3, absent=list)
    zk_migration_ready: Boolean = tagged(3, since=3, absent=False)
