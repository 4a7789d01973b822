"""The built-in ZooKeeper: sessions that outlive connections, and watches set again.

What it shares with other ZooKeepers is in tests/contracts.
"""

from __future__ import annotations

import struct

from kazoo.protocol import serialization as messages
from kazoo.security import OPEN_ACL_UNSAFE

from anabranch.controller.zk.server import jute
from anabranch.controller.zk.server.session_password import password_of
from tests.controller.zk.server.clients import Client, FakeTime, framed, new_service, told

CREATED, DELETED, CHANGED, CHILDREN = 1, 2, 3, 4
NO_NODE = -101


def create(path: str, flags: int = 0) -> messages.Create:
    return messages.Create(path, b"x", OPEN_ACL_UNSAFE, flags)


def test_session_resumes_on_another_connection_with_its_ephemerals() -> None:
    service = new_service()
    first, second = Client(service), Client(service)
    _, session_id = first.connect()
    assert first.ask(create("/e", flags=1)) == [0]
    first.connection.lost()
    assert second.connect(session_id, password_of(session_id)) == (10_000, session_id)
    assert second.ask(messages.Exists("/e", None)) == [0]
    assert service.tree.node("/e").owner == session_id


def test_resumed_session_leaves_its_former_connection() -> None:
    service = new_service()
    first, second = Client(service), Client(service)
    _, session_id = first.connect()
    second.connect(session_id, password_of(session_id))
    assert (first.hung_up, second.hung_up) == (True, False)
    first.connection.receive(framed(b""))  # what was on its way is not read
    assert second.ask(messages.Exists("/", None)) == [0]


def test_session_cannot_be_resumed_with_a_wrong_password() -> None:
    service = new_service()
    owner, thief = Client(service), Client(service)
    _, session_id = owner.connect()
    assert thief.connect(session_id, bytes(16)) == (0, 0)
    assert (owner.hung_up, thief.hung_up) == (False, True)
    assert session_id in service.sessions


def test_silent_session_expires_and_others_are_told() -> None:
    clock = FakeTime()
    service = new_service(clock)
    silent, other, late = Client(service), Client(service), Client(service)
    _, session_id = silent.connect(timeout_ms=2000)
    other.connect(timeout_ms=20_000)
    silent.ask(create("/e", flags=1))
    other.ask(messages.Exists("/e", object()))
    clock.now_s = 1.9
    service.expire_sessions()
    assert silent.ask(messages.Ping, xid=-2) == [0]
    clock.now_s = 3.8
    service.expire_sessions()
    assert (silent.hung_up, "/e" in service.tree.nodes) == (False, True)
    clock.now_s = 3.91
    service.expire_sessions()
    assert (silent.hung_up, other.hung_up, "/e" in service.tree.nodes) == (True, False, False)
    assert told(other.take()) == [(DELETED, "/e")]
    assert late.connect(session_id, password_of(session_id)) == (0, 0)


def test_timeout_is_negotiated_within_limits() -> None:
    service = new_service()
    for asked_ms, granted_ms in ((1, 500), (-5, 500), (6000, 6000), (2**31 - 1, 120_000)):
        assert Client(service).connect(timeout_ms=asked_ms)[0] == granted_ms


def test_closed_session_ends_with_its_ephemerals_after_its_response() -> None:
    service = new_service()
    client = Client(service)
    client.connect()
    client.ask(create("/e", flags=1))
    assert client.ask(messages.Close) == [0]
    assert (client.hung_up, service.sessions, "/e" in service.tree.nodes) == (True, {}, False)


def test_event_comes_before_the_response_to_the_write() -> None:
    service = new_service()
    writer, reader = Client(service), Client(service)
    writer.connect()
    reader.connect()
    writer.ask(create("/n"))
    for client in (writer, reader):
        assert client.ask(messages.GetData("/n", object())) == [0]
    assert writer.ask(messages.SetData("/n", b"2", -1)) == [(CHANGED, "/n"), 0]
    assert reader.ask(messages.GetData("/n", None)) == [(CHANGED, "/n"), 0]


def test_deletion_is_one_event_for_a_connection_that_watches_data_and_children() -> None:
    service = new_service()
    client = Client(service)
    client.connect()
    client.ask(create("/n"))
    client.ask(messages.GetData("/n", object()))
    client.ask(messages.GetChildren("/n", object()))
    assert client.ask(messages.Delete("/n", -1)) == [(DELETED, "/n"), 0]


def test_lost_connection_loses_its_watches() -> None:
    service = new_service()
    first, second = Client(service), Client(service)
    _, session_id = first.connect()
    first.ask(messages.Exists("/n", object()))
    first.connection.lost()
    second.connect(session_id, password_of(session_id))
    assert service._watches.remove(lambda watcher: True) == [], "nothing is kept of a lost connection"
    assert second.ask(create("/n")) == [0]


class SetWatches:
    """ZooKeeper's request 101, which kazoo does not have."""

    type = 101

    def __init__(self, zxid: int, data: list[str], exists: list[str], children: list[str]) -> None:
        self.serialize = lambda: struct.pack(">q", zxid) + b"".join(map(jute.texts, (data, exists, children)))


def test_watches_that_are_set_again_fire_for_missed_changes_only() -> None:
    service = new_service()
    client = Client(service)
    client.connect()
    for path in ("/same", "/changed", "/parent", "/quiet"):
        client.ask(create(path))
    seen = service.tree.zxid
    client.ask(messages.SetData("/changed", b"2", -1))
    client.ask(create("/parent/child"))
    client.ask(create("/appeared"))
    again = SetWatches(
        seen, ["/same", "/changed", "/gone"], ["/appeared", "/absent"], ["/quiet", "/parent", "/gone-parent"]
    )
    assert client.ask(again, xid=-8) == [
        (CHANGED, "/changed"),
        (DELETED, "/gone"),
        (CREATED, "/appeared"),
        (CHILDREN, "/parent"),
        (DELETED, "/gone-parent"),
        0,
    ]
    assert client.ask(messages.SetData("/same", b"2", -1)) == [(CHANGED, "/same"), 0]
    assert client.ask(create("/absent")) == [(CREATED, "/absent"), 0]
    assert client.ask(create("/quiet/child")) == [(CHILDREN, "/quiet"), 0]


def test_read_of_a_missing_znode_sets_no_watch() -> None:
    client = Client(new_service())
    client.connect()
    assert client.ask(messages.GetData("/n", object())) == [NO_NODE]
    assert client.ask(messages.GetChildren("/n", object())) == [NO_NODE]
    assert client.ask(create("/n")) == [0]


def test_watch_of_existence_is_told_once_of_the_next_change() -> None:
    client = Client(new_service())
    client.connect()
    assert client.ask(messages.Exists("/n", object())) == [NO_NODE]
    assert client.ask(create("/n")) == [(CREATED, "/n"), 0]
    assert client.ask(messages.Exists("/n", None)) == [0]
    assert client.ask(messages.SetData("/n", b"2", -1)) == [0]
    assert client.ask(messages.Exists("/n", object())) == [0]
    assert client.ask(messages.Delete("/n", -1)) == [(DELETED, "/n"), 0]
