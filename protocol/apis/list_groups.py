"""ListGroups (key 16), v0-v5, flexible from v3."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Int16, Int32, Text, since


@dataclass(slots=True, kw_only=True)
class ListGroupsRequest:
    states_filter: list[Text] = since(4, absent=list)
    types_filter: list[Text] = since(5, absent=list)


@dataclass(slots=True, kw_only=True)
class ListedGroup:
    group_id: Text
    protocol_type: Text
    group_state: Text = since(4, absent="")
    group_type: Text = since(5, absent="")


@dataclass(slots=True, kw_only=True)
class ListGroupsResponse:
    throttle_time_ms: Int32 = since(1, absent=0)
    error_code: Int16
    groups: list[ListedGroup]
