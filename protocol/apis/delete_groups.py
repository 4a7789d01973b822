"""DeleteGroups (key 42), v0-v2, flexible from v2."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Int16, Int32, Text, always


@dataclass(slots=True, kw_only=True)
class DeleteGroupsRequest:
    groups_names: list[Text]


@dataclass(slots=True, kw_only=True)
class DeletableGroupResult:
    group_id: Text
    error_code: Int16


@dataclass(slots=True, kw_only=True)
class DeleteGroupsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    results: list[DeletableGroupResult]
