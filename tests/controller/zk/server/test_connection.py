"""A connection to the built-in ZooKeeper: split frames, four-letter words, logins, and malformed requests."""

from __future__ import annotations

import logging
import random
import struct
from typing import Any

import pytest
from kazoo.protocol import serialization as messages
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from anabranch.controller.zk.multi_read import MultiRead
from anabranch.controller.zk.server.session_password import password_of
from anabranch.controller.zk.sizes import REQUEST_BYTES_MAX
from tests.controller.zk.server.clients import Client, connect_request, encoded, framed, new_service

REQUESTS: tuple[Any, ...] = (
    messages.Create("/n", b"x", OPEN_ACL_UNSAFE, 0),
    messages.Create2("/s", b"x", OPEN_ACL_UNSAFE, 3),
    messages.Create("/mine", b"x", CREATOR_ALL_ACL, 0),
    messages.SetData("/n", b"y", 0),
    messages.GetData("/n", object()),
    messages.Exists("/none", object()),
    messages.GetChildren("/", object()),
    messages.GetChildren2("/", None),
    messages.GetACL("/n"),
    messages.Sync("/n"),
    messages.Transaction((messages.CheckVersion("/n", 1), messages.Delete("/n", 1))),
    MultiRead(["/", "/none"]),
    messages.Auth(0, "digest", "user:password"),
    messages.Ping,
)


def bad_frames() -> dict[str, bytes]:
    unknown_write = struct.pack(">ii", 1, 14) + struct.pack(">i?i", 99, False, -1)
    many_texts = struct.pack(">iiqi", 1, 101, 0, 2**31 - 1)
    return {
        "a request of 1,048,576 bytes; the limit is 1,048,575": struct.pack(">i", REQUEST_BYTES_MAX + 1),
        "a request of -1 bytes": struct.pack(">i", -1),
        "a message that ends 4 bytes early": framed(struct.pack(">i", 1)),
        "a message that ends 94 bytes early": framed(struct.pack(">iii", 1, 4, 100) + b"/short"),
        "a text that is not UTF-8": framed(struct.pack(">iii", 1, 4, 1) + b"\xff\0"),
        "a multi with an operation of type 99": framed(unknown_write),
        "a list of 2,147,483,647 elements in 0 bytes": framed(many_texts),
    }


@pytest.mark.parametrize("reason", bad_frames())
def test_nonsense_closes_its_connection_with_one_line(reason: str, caplog: pytest.LogCaptureFixture) -> None:
    service = new_service()
    client, other = Client(service), Client(service)
    _, session_id = client.connect()
    other.connect()
    with caplog.at_level(logging.WARNING):
        client.connection.receive(bad_frames()[reason])
    assert client.hung_up
    (line,) = caplog.messages
    assert line.startswith("closed the ZooKeeper connection of client:1: ")
    assert reason in line
    assert other.ask(messages.Exists("/", None)) == [0]
    assert Client(service).connect(session_id, password_of(session_id))[1] == session_id


def test_reads_beyond_the_limit_of_a_response_close_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    service = new_service()
    service.tree.transact(lambda: service.tree.create("/large", bytes(1 << 20), owner=0))
    client, other = Client(service), Client(service)
    client.connect()
    other.connect()
    assert client.ask(MultiRead(["/large"] * 60)) == [0]
    client.connection.receive(framed(encoded(MultiRead(["/large"] * 50_000))))
    assert client.hung_up and client.received == b""
    assert "a multiRead of over 67,108,864 bytes" in caplog.text
    assert other.ask(messages.Exists("/", None)) == [0]


def test_requests_are_the_same_in_any_pieces() -> None:
    stream = connect_request() + b"".join(framed(encoded(one, 5)) for one in REQUESTS)
    whole, single = Client(new_service()), Client(new_service())
    whole.connection.receive(stream)
    for place in range(len(stream)):
        single.connection.receive(stream[place : place + 1])
    assert whole.received == single.received
    assert len(whole.take()) > len(REQUESTS), "events, too"


@pytest.mark.parametrize("seed", range(30))
def test_damaged_requests_raise_nothing(seed: int) -> None:
    rng = random.Random(seed)
    service = new_service()
    healthy = Client(service)
    healthy.connect()
    for _ in range(100):
        client = Client(service)
        stream = bytearray(connect_request() + b"".join(framed(encoded(one)) for one in rng.sample(REQUESTS, 5)))
        for _ in range(rng.randint(1, 4)):
            stream[rng.randrange(len(stream))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        client.connection.receive(bytes(stream))
        client.connection.lost()
        Client(service).connection.receive(rng.randbytes(rng.randrange(60)))
    assert healthy.ask(messages.Exists("/", None)) == [0]


def test_commands_of_four_letters_are_answered_and_closed() -> None:
    service = new_service()
    Client(service).connect()
    answers = {}
    for command in (b"srvr", b"ruok", b"kill"):
        client = Client(service)
        client.connection.receive(command[:1])
        client.connection.receive(command[1:])
        assert client.hung_up
        answers[command] = client.received.decode()
    assert answers[b"ruok"] == "imok"
    assert "\nMode: standalone\n" in answers[b"srvr"]
    assert "\nConnections: 1\n" in answers[b"srvr"]
    assert answers[b"kill"] == "kill is not executed because it is not in the whitelist.\n"


def test_command_is_not_executed_in_a_session() -> None:
    client = Client(new_service())
    client.connect()
    client.connection.receive(b"srvr")
    assert (client.hung_up, client.received) == (True, b"")


class Sasl:
    """A login by SASL."""

    type = 102

    @staticmethod
    def serialize() -> bytes:
        return struct.pack(">i", 0)


@pytest.mark.parametrize("login", [Sasl, messages.Auth(0, "x509", "someone")])
def test_unknown_login_is_refused_with_what_to_do(login: Any, caplog: pytest.LogCaptureFixture) -> None:
    client = Client(new_service())
    client.connect()
    assert client.ask(login) == [-115]
    assert client.hung_up
    assert "use --zookeeper local" in caplog.text


def test_digest_login_is_accepted_and_owners_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Any user may log in by digest at a real server, too. It only matters for ACLs."""
    client = Client(new_service())
    client.connect()
    assert client.ask(messages.Auth(0, "digest", "user:password"), xid=-4) == [0]
    for _ in range(2):
        assert client.ask(messages.Create("/mine", b"", CREATOR_ALL_ACL, 0)) == [-114]
    assert len(caplog.messages) == 1
    assert "/mine is refused" in caplog.text


@pytest.mark.parametrize(("flags", "code"), [(4, -6), (5, -6), (6, -6), (8, -8), (-1, -8)])
def test_unknown_kinds_of_znodes_are_refused(flags: int, code: int) -> None:
    client = Client(new_service())
    client.connect()
    assert client.ask(messages.Create("/n", b"", OPEN_ACL_UNSAFE, flags)) == [code]


@pytest.mark.parametrize(("path", "flags"), [("/gone/n", 8), ("/gone/./n", 0)])
def test_missing_parent_is_found_before_an_invalid_argument(path: str, flags: int) -> None:
    client = Client(new_service())
    client.connect()
    assert client.ask(messages.Create(path, b"", OPEN_ACL_UNSAFE, flags)) == [-101]


def test_unsupported_request_has_an_error_and_the_session_goes_on() -> None:
    class AddWatch:
        type = 106

        @staticmethod
        def serialize() -> bytes:
            return b""

    client = Client(new_service())
    client.connect()
    assert client.ask(AddWatch) == [-6]
    assert client.ask(messages.Exists("/", None)) == [0]
