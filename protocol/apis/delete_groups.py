"""DeleteGroups (key 42), v0-v2, flexible from v2."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Text, always, message


@message
class DeleteGroupsRequest:
    groups_names: list[Text]


@message
class DeletableGroupResult:
    group_id: Text
    error_code: Int16


@message
class DeleteGroupsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    results: list[DeletableGroupResult]
