"""ListGroups (key 16), v0-v5, flexible from v3."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Text, message, since


@message
class ListGroupsRequest:
    states_filter: list[Text] = since(4, absent=list)
    types_filter: list[Text] = since(5, absent=list)


@message
class ListedGroup:
    group_id: Text
    protocol_type: Text
    group_state: Text = since(4, absent="")
    group_type: Text = since(5, absent="")


@message
class ListGroupsResponse:
    throttle_time_ms: Int32 = since(1, absent=0)
    error_code: Int16
    groups: list[ListedGroup]
