"""The built-in ZooKeeper answers as the real one: the same random requests get the same responses, errors and events.

Method: kazoo's own messages, so that also paths that its client refuses reach the servers. Transaction numbers are
compared by their order, since other tests write to the real server, and session ids by whose they are.
"""

from __future__ import annotations

import asyncio
import queue
import random
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.protocol import serialization as messages
from kazoo.protocol.states import WatchedEvent, ZnodeStat
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from anabranch.cluster.local_zookeeper import java_version
from anabranch.controller.zk.multi_read import MultiRead
from anabranch.controller.zk.server.tcp_server import ZooKeeperTcpServer
from anabranch.controller.zk.session import Stat
from anabranch.controller.zk.tree import ZnodeTree
from tests.cases import costly

REQUESTS: Final = 800
PATHS: Final = ("/a", "/a/b", "/a/b/c", "/d", "/d/e", "/ü", "/ü/e", "/a/missing/x")
ODD_PATHS: Final = ("/a//b", "/a/", "/a/.", "/./a", "/a/../b", "/.a", "/a..b", "/a\x01", "/a\ufff0", "/ok\u2028")
TRANSACTION_FIELDS: Final = ("czxid", "mzxid", "pzxid")


class Side:
    """One server, two sessions with it, and what it answered."""

    def __init__(self, hosts: str) -> None:
        self._server, _, root = hosts.partition("/")
        self._root = f"/{root}"
        self._clients: list[KazooClient] = [self._open(), self._open()]
        self._events: queue.Queue[object] = queue.Queue()
        self._ends = 0
        self._owners: dict[int, int] = {0: -1}
        self.story: list[object] = []
        self._clients[0].ensure_path(self._root)

    def _open(self) -> KazooClient:
        client = KazooClient(self._server, timeout=30)
        client.start(30)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.stop()
            client.close()

    def reopen(self) -> None:
        """End the second session, whose ephemerals go with it."""
        self._clients[1].stop()
        self._clients[1].close()
        self._clients[1] = self._open()

    def ask(self, who: int, request: Any) -> None:
        """Send a request, and note the answer."""
        client = self._clients[who]
        self._owners.setdefault(client.client_id[0], len(self._owners))
        answer = client.handler.async_result()
        client._call(request, answer)
        try:
            self.story.append(self._plain(answer.get(timeout=30)))
        except KazooException as error:
            self.story.append(type(error).__name__)

    def _plain(self, answer: Any) -> object:
        if isinstance(answer, ZnodeStat):
            assert abs(time.time() - answer.mtime / 1000) < 600 > abs(time.time() - answer.ctime / 1000)
            fields = answer._asdict()
            owner = self._owners[fields.pop("ephemeralOwner")]
            zxids = tuple(("zxid", fields.pop(name)) for name in TRANSACTION_FIELDS)
            times = fields.pop("ctime") <= fields.pop("mtime")
            return zxids, owner, times, tuple(fields.items())
        if isinstance(answer, Stat):  # of a multiRead
            return answer.version, answer.children_count, self._owners[answer.ephemeral_owner]
        if isinstance(answer, KazooException):
            return type(answer).__name__
        if isinstance(answer, list) and all(isinstance(one, str) for one in answer):
            plain = [one.removeprefix(self._root) for one in answer]  # paths of a multi, or names of children:
            return plain if plain != answer else sorted(plain)  # a real server returns them in a hash table's order
        if isinstance(answer, list | tuple) and not isinstance(answer, ACL):
            return [self._plain(one) for one in answer]
        return answer.removeprefix(self._root) if isinstance(answer, str) else answer

    def path(self, path: str) -> str:
        return self._root + path

    def watcher(self, who: int) -> Any:
        def note(event: WatchedEvent) -> None:
            self._events.put((who, event.type, event.path.removeprefix(self._root)))

        return note

    def events(self) -> list[Any]:
        """The events since the last call, each client's in order. A last watch of each shows that there are no more."""
        self._ends += 1
        last = []
        for who, client in enumerate(self._clients):
            path = f"/end{who}-{self._ends}"
            client.exists(self.path(path), watch=self.watcher(who))
            client.create(self.path(path))
            last.append((who, "CREATED", path))
        noted: list[Any] = []
        while not all(one in noted for one in last):
            noted.append(self._events.get(timeout=30))
        return sorted(noted, key=lambda one: int(one[0]))


def ranked(story: list[object]) -> list[object]:
    """The story with each transaction number replaced by its place among all that were seen."""
    seen: set[int] = set()

    def collect(part: object) -> None:
        if isinstance(part, tuple) and len(part) == 2 and part[0] == "zxid":
            seen.add(part[1])
        elif isinstance(part, list | tuple):
            for one in part:
                collect(one)

    def replace(part: object) -> object:
        if isinstance(part, tuple) and len(part) == 2 and part[0] == "zxid":
            return places[part[1]]
        return [replace(one) for one in part] if isinstance(part, list | tuple) else part

    collect(story)
    places = {zxid: place for place, zxid in enumerate(sorted(seen))}
    return [replace(part) for part in story]


def requests(side: Side, seed: int) -> Iterator[tuple[int, Any]]:
    """The same requests for each side."""
    rng = random.Random(seed)
    watchers = [side.watcher(0), side.watcher(1)]
    for _ in range(REQUESTS):
        who = rng.randrange(2)
        path = side.path(rng.choice(ODD_PATHS if rng.random() < 0.06 else PATHS))
        watch = watchers[who] if rng.random() < 0.7 else None
        version = rng.choice((-1, -1, 0, 1, 2))
        data = rng.randbytes(rng.randrange(20))
        acl = rng.choice((OPEN_ACL_UNSAFE,) * 9 + ([],))
        flags = rng.choice((0, 0, 1, 1, 2, 3))
        match rng.choice(("create", "create", "create2", "set", "delete", "multi", "read", "read")):
            case "create":
                yield who, messages.Create(path, data, acl, flags)
            case "create2":
                yield who, messages.Create2(path, data, acl, flags)
            case "set":
                yield who, messages.SetData(path, data, version)
            case "delete":
                yield who, messages.Delete(path, version)
            case "multi":
                writes = (
                    messages.Create(path, data, acl, flags),
                    messages.SetData(side.path(rng.choice(PATHS)), data, version),
                    messages.Delete(side.path(rng.choice(PATHS)), version),
                    messages.CheckVersion(side.path(rng.choice(PATHS)), version),
                    messages.Create(side.path(rng.choice(PATHS)), data, acl, flags),
                )
                yield who, messages.Transaction(rng.sample(writes, rng.randint(1, 4)))
            case _:
                yield (
                    who,
                    rng.choice(
                        (
                            messages.GetData(path, watch),
                            messages.Exists(path, watch),
                            messages.GetChildren(path, watch),
                            messages.GetChildren2(path, watch),
                            messages.GetACL(path),
                            messages.Sync(path),
                            MultiRead([path, side.path("/a"), side.path("/nowhere")]),
                        )
                    ),
                )


def run(side: Side, seed: int) -> tuple[list[object], list[object]]:
    events: list[object] = []
    for place, (who, request) in enumerate(requests(side, seed)):
        if place % 200 == 199:
            events += side.events()
            side.reopen()
            events += sorted(side.events())  # a real server deletes the ephemerals of a session in any order
        side.story.append(type(request).__name__)
        side.ask(who, request)
    return ranked(side.story), events + side.events()


@pytest.fixture
async def built_in() -> AsyncIterator[str]:
    server = ZooKeeperTcpServer(ZnodeTree())
    await server.start("127.0.0.1")
    yield f"127.0.0.1:{server.port}/test"
    await server.stop()


def run_on(hosts: str, seed: int) -> tuple[list[object], list[object]]:
    side = Side(hosts)
    try:
        return run(side, seed)
    finally:
        side.close()


@pytest.mark.zookeeper
@pytest.mark.parametrize("seed", [0, 1, *costly(range(2, 5))])
async def test_random_requests_get_the_answers_of_the_real_server(
    built_in: str, zookeeper_hosts: str, seed: int
) -> None:
    (expected, expected_events), (found, found_events) = await asyncio.gather(
        *(asyncio.to_thread(run_on, hosts, seed) for hosts in (zookeeper_hosts, built_in))
    )
    for place, (theirs, ours) in enumerate(zip(expected, found, strict=True)):
        assert (expected[place - 1], theirs) == (found[place - 1], ours), (place, seed)
    assert expected_events == found_events
    answers = {one for one in found if isinstance(one, str)}
    wanted = {"NoNodeError", "NodeExistsError", "BadVersionError", "BadArgumentsError", "NoChildrenForEphemeralsError"}
    assert wanted <= answers, "the requests reach the interesting cases"
    assert len(found_events) > 10


async def test_owned_znodes_are_refused(built_in: str) -> None:
    """A real server keeps ACLs: this one keeps none, and accepts only the one that allows everything."""

    def create() -> list[object]:
        side = Side(built_in)
        try:
            side.ask(0, messages.Create(side.path("/mine"), b"", CREATOR_ALL_ACL, 0))
            side.ask(0, messages.Exists(side.path("/mine"), None))
            return side.story
        finally:
            side.close()

    assert (await asyncio.to_thread(create))[:2] == ["InvalidACLError", None]


@pytest.mark.zookeeper
async def test_zookeeper_shell_of_the_real_server_works(built_in: str) -> None:
    """`zkCli.sh` of ZooKeeper's own jar: Java's client, which asks for sessions and reads in its own way."""
    runtime, jars = java_version()
    server, _, _ = built_in.partition("/")

    async def shell(*words: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *(runtime.command, "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", jars),
            *("org.apache.zookeeper.ZooKeeperMain", "-server", server, *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, errors = await process.communicate()
        return said.decode() + errors.decode()

    async with asyncio.timeout(60):
        assert "Created /made" in await shell("create", "/made", "by-java")
        found = await shell("get", "-s", "/made")
        assert "by-java" in found
        assert "dataLength = 7" in found
        assert "Node already exists: /made" in await shell("create", "/made", "again")
        await shell("deleteall", "/made")
        assert "Created /made" in await shell("create", "/made")
