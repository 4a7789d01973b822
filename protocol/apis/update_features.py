"""UpdateFeatures (key 57), v0-v2, flexible from v0.

v1   the kind of a downgrade, and only to ask                            KIP-778
v2   all updates or none: the answer has no result for each              KIP-1022
"""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int8, Int16, Int32, Text, always, message, since, until


@message
class FeatureUpdateKey:
    feature: Text
    max_version_level: Int16
    allow_downgrade: Boolean = until(0, absent=False)
    upgrade_type: Int8 = since(1, absent=1)


@message
class UpdateFeaturesRequest:
    timeout_ms: Int32 = always(absent=60000)
    feature_updates: list[FeatureUpdateKey]
    validate_only: Boolean = since(1, absent=False)


@message
class UpdatableFeatureResult:
    feature: Text
    error_code: Int16
    error_message: Text | None


@message
class UpdateFeaturesResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None
    results: list[UpdatableFeatureResult] = until(1, absent=list)
