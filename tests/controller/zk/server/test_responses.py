"""The messages of the built-in ZooKeeper, as kazoo reads them."""

from __future__ import annotations

import pytest
from kazoo.protocol import serialization as messages
from kazoo.protocol.connection import EVENT_TYPE_MAP, WATCH_XID

from anabranch.controller.zk.server import responses
from anabranch.controller.zk.session import WatchEvent


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (WatchEvent("/n", "created"), "CREATED"),
        (WatchEvent("/n", "deleted"), "DELETED"),
        (WatchEvent("/n", "changed"), "CHANGED"),
        (WatchEvent("/n", "children"), "CHILD"),
    ],
)
def test_watch_event_has_its_type_and_path(event: WatchEvent, kind: str) -> None:
    header, offset = messages.ReplyHeader.deserialize(message := responses.watch_event(event, 7), 0)
    watch, end = messages.Watch.deserialize(message, offset)
    assert (header.xid, header.zxid, header.err, end) == (WATCH_XID, 7, 0, len(message))
    assert (EVENT_TYPE_MAP[watch.type], watch.path, watch.state) == (kind, "/n", 3)


@pytest.mark.parametrize("read_only", [True, False])
def test_connect_response_knows_read_only_if_the_client_does(read_only: bool) -> None:
    """Clients before 3.4 read a message that is a byte shorter."""
    message = responses.connect_response(5, 6000, b"p" * 16, read_only=read_only)
    answer, end = messages.Connect.deserialize(message, 0)
    assert (answer.session_id, answer.time_out, answer.passwd, answer.read_only) == (5, 6000, b"p" * 16, 0)
    assert len(message) == (37 if read_only else 36)
    assert end == len(message)
