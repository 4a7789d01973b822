"""ListGroups (key 16), v0-v5, flexible from v3; with our tag, only groups with stock members that read a topic."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Text, message, since, tagged


@message
class ListGroupsRequest:
    states_filter: list[Text] = since(4, absent=list)
    types_filter: list[Text] = since(5, absent=list)
    readers_of: Text = tagged(2548, since=3, absent="")
    """A topic: only the groups that read it, or subscribe to it, with members that hold no gates."""


@message
class ListedGroup:
    group_id: Text
    protocol_type: Text
    group_state: Text = since(4, absent="")
    group_type: Text = since(5, absent="")
    readers: Text = tagged(2550, since=3, absent="")
    """Such members of the group: one by its name and address, and how many more."""
    protocol: Text = tagged(2551, since=3, absent="")
    """By which its members are assigned."""


@message
class ListGroupsResponse:
    throttle_time_ms: Int32 = since(1, absent=0)
    error_code: Int16
    groups: list[ListedGroup]
    coordinated: list[Int32] = tagged(2552, since=3, absent=list)
    """If readers were asked for: the partitions of `__consumer_offsets` whose groups this broker has looked at."""
