"""The in-memory ZooKeeper and the real one keep the same contract (controller/zk/session.py).

Method: every test runs twice, in the two worlds of `zk_worlds`.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from anabranch.controller.zk.session import (
    BadVersion,
    Check,
    ConnectionLoss,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionEvent,
    SessionExpired,
    Set,
    Stat,
    TooLarge,
    WatchEvent,
)
from anabranch.controller.zk.sizes import REQUEST_BYTES_MAX, TRANSACTION_BYTES, bytes_of, multi_bytes, pieces
from tests.contracts.zk_worlds import (
    PATIENCE_S,
    Seen,
    World,
    answer_of,
)

# ---------------------------------------------------------------------------------------------- znodes


async def test_znode_is_created_read_changed_and_deleted(world: World) -> None:
    zk = await world.connect()
    assert await zk.create("/a", b"one") == "/a"
    data, created = await zk.get("/a")
    assert (data, created.version, created.ephemeral_owner, created.children_count) == (b"one", 0, 0, 0)
    assert created.mzxid == created.czxid
    written = await zk.set("/a", b"two", 0)
    assert (written.version, written.czxid) == (1, created.czxid)
    assert written.mzxid > created.mzxid
    assert await zk.get("/a") == (b"two", written)
    assert (await zk.set("/a", b"three")).version == 2  # any version
    await zk.delete("/a", 2)
    assert await zk.exists("/a") is None


async def test_empty_znode_is_read_as_no_bytes(world: World) -> None:
    zk = await world.connect()
    await zk.create("/a")
    assert (await zk.get("/a"))[0] == b""


async def test_many_znodes_are_read_at_once_and_in_order(world: World) -> None:
    zk = await world.connect()
    for number in range(300):
        await zk.create(f"/n{number}", b"" if number == 7 else b"%d" % number)
    await zk.set("/n5", b"again")
    await zk.create("/mine", b"x", ephemeral=True)
    names = ["/mine", "/nowhere", *(f"/n{number}" for number in range(300)), "/n5"]
    found = await zk.get_many(names)
    assert found[1] is None
    assert [found[place] for place in (0, *range(2, 303))] == [
        await zk.get(name) for name in names if name != "/nowhere"
    ]
    assert found[0] is not None and found[0][1].ephemeral_owner == zk.session_id
    assert found[7] is not None and (found[7][0], found[7][1].version) == (b"again", 1)
    assert await zk.get_many([]) == []
    await world.expire(zk)
    assert await answer_of(zk.get_many(["/n1"])) in (SessionExpired, ConnectionLoss)


async def test_sync_ends_behind_the_writes_of_other_sessions(world: World) -> None:
    one, two = await world.connect(), await world.connect()
    for number in range(20):
        await one.create(f"/n{number}")
        await two.sync()
        assert await two.exists(f"/n{number}") is not None
    await world.expire(two)
    assert await answer_of(two.sync()) in (SessionExpired, ConnectionLoss)


async def test_children_are_sorted_and_counted(world: World) -> None:
    zk = await world.connect()
    for path in ("/p", *[f"/p/{name}" for name in ("b", "a", "10", "9", "zeta", "Z", "ab", "ba")], "/p/a/deep"):
        await zk.create(path)
    assert await zk.children("/p") == ["10", "9", "Z", "a", "ab", "b", "ba", "zeta"]
    stat = await zk.exists("/p")
    assert stat is not None
    assert stat.children_count == 8
    await zk.delete("/p/ab")
    assert await zk.children("/p") == ["10", "9", "Z", "a", "b", "ba", "zeta"]
    assert "p" in await zk.children("/")


async def test_parents_are_created_on_request(world: World) -> None:
    zk = await world.connect()
    assert await answer_of(zk.create("/x/y/z")) is NoNode
    assert await zk.create("/x/y/z", b"deep", make_parents=True) == "/x/y/z"
    assert (await zk.get("/x/y/z"))[0] == b"deep"
    assert (await zk.get("/x/y"))[0] == b""
    assert await answer_of(zk.create("/x/y/z", make_parents=True)) is NodeExists


async def test_errors_have_their_type_and_path(world: World) -> None:
    zk = await world.connect()
    await zk.create("/a/b", make_parents=True)
    for call, kind in [
        (zk.get("/none"), NoNode),
        (zk.children("/none"), NoNode),
        (zk.set("/none", b""), NoNode),
        (zk.delete("/none"), NoNode),
        (zk.create("/none/child"), NoNode),
        (zk.create("/a"), NodeExists),
        (zk.set("/a", b"", 7), BadVersion),
        (zk.delete("/a/b", 7), BadVersion),
        (zk.delete("/a"), NotEmpty),
    ]:
        with pytest.raises(kind) as raised:
            await call
        assert raised.value.path in ("/none", "/none/child", "/a", "/a/b")
        assert type(raised.value) is kind


async def test_new_znode_has_higher_czxid_than_earlier_writes(world: World) -> None:
    """Broker epochs are czxids: a new registration must be newer than all earlier writes."""
    zk, other = await world.connect(), await world.connect()
    _, first = await zk.create_with_stat("/n", ephemeral=True)
    written = await other.set("/n", b"x")
    await zk.delete("/n")
    path, second = await zk.create_with_stat("/n", b"data", ephemeral=True)
    assert path == "/n"
    assert second.czxid > written.mzxid > first.czxid
    assert (second.version, second.ephemeral_owner) == (0, zk.session_id)
    assert (await zk.get("/n"))[1] == second


async def test_sequence_numbers_increase_and_are_never_reused(world: World) -> None:
    zk = await world.connect()
    await zk.create("/q")
    first = await zk.create("/q/n_", b"1", sequence=True)
    await zk.create("/q/other")
    second, stat = await zk.create_with_stat("/q/n_", b"2", sequence=True, ephemeral=True)
    assert first == "/q/n_0000000000"
    assert second == "/q/n_0000000002"  # the parent counts all of its children
    assert stat.ephemeral_owner == zk.session_id
    await zk.delete(second)
    assert await zk.create("/q/n_", sequence=True) == "/q/n_0000000003"


async def test_requests_of_one_session_keep_order(world: World) -> None:
    zk = await world.connect()
    answers = await asyncio.gather(
        *[zk.create("/o"), zk.create("/o/1"), zk.children("/o"), zk.set("/o", b"x", 0), zk.get("/o")]
    )
    assert answers[2] == ["1"]
    assert answers[4][0] == b"x"


async def test_request_of_cancelled_caller_is_still_executed(world: World) -> None:
    zk = await world.connect()
    task = asyncio.create_task(zk.create("/asked"))
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert await zk.exists("/asked") is not None


# ---------------------------------------------------------------------------------------------- multi


async def test_multi_returns_result_of_each_operation(world: World) -> None:
    zk = await world.connect()
    await zk.create("/epoch", b"1")
    await zk.create("/old")
    answers = await zk.multi(
        [Check("/epoch", 0), Create("/n", b"", ephemeral=True), Set("/n", b"x", 0), Delete("/old")]
    )
    stat = answers[2]
    assert isinstance(stat, Stat)
    assert (answers[0], answers[1], answers[3]) == (None, "/n", None)
    assert (stat.version, stat.ephemeral_owner) == (1, zk.session_id)
    data, read = await zk.get("/n")
    assert (data, read) == (b"x", stat)
    assert await zk.exists("/old") is None


async def test_multi_continues_existing_sequence_numbers(world: World) -> None:
    zk = await world.connect()
    await zk.create("/numbered")
    await zk.create("/numbered/n", sequence=True)
    assert await zk.multi([Create("/other", b""), Create("/numbered/n", b"x", sequence=True)]) == [
        "/other",
        "/numbered/n0000000001",
    ]
    with pytest.raises(NodeExists):
        await zk.multi([Create("/numbered/n", b"", sequence=True), Create("/other", b"")])
    assert await zk.create("/numbered/n", sequence=True) in ("/numbered/n0000000002", "/numbered/n0000000003")
    assert (await zk.get("/numbered/n0000000001"))[0] == b"x"


async def test_largest_requests_are_accepted_and_larger_ones_never_sent(world: World) -> None:
    """No request is sent that the server would refuse repeatedly. Sends the largest allowed request of each kind, and
    one byte more.
    """
    zk = await world.connect()
    root = getattr(zk, "_root", "")
    room = REQUEST_BYTES_MAX - (
        multi_bytes([Create("/c", b"")], root) - 18
    )  # neither the operation's header nor the end's
    await zk.create("/c", bytes(room))
    with pytest.raises(TooLarge):
        await zk.create("/d", bytes(room + 1))
    room = REQUEST_BYTES_MAX - (multi_bytes([Set("/c", b"")], root) - 18)
    assert (await zk.set("/c", bytes(room))).version == 1
    with pytest.raises(TooLarge):
        await zk.set("/c", bytes(room + 1))
    several = [Check("/c", 1), Create("/m", b""), Delete("/m"), Set("/c", b"")]
    room = REQUEST_BYTES_MAX - multi_bytes(several, root)
    with pytest.raises(TooLarge) as refused:
        await zk.multi([*several[:3], Set("/c", bytes(room + 1))])
    assert (refused.value.path, refused.value.index, refused.value.size_bytes) == ("/c", 3, REQUEST_BYTES_MAX + 1)
    await zk.multi([*several[:3], Set("/c", bytes(room))])
    data, stat = await zk.get("/c")
    assert (len(data), stat.version) == (room, 2)


async def test_responses_may_be_larger_than_requests(world: World) -> None:
    zk = await world.connect()
    names = [f"{index:04}{'n' * 230}" for index in range(6000)]
    creates = [Create(f"/{name}", bytes(1000)) for name in names]
    for some in pieces(creates, bytes_of, count_max=1000, bytes_max=TRANSACTION_BYTES):
        await zk.multi(some)
    assert len("".join(found := [one for one in await zk.children("/") if "n" * 230 in one])) > REQUEST_BYTES_MAX
    assert found == names
    read = await zk.get_many([f"/{name}" for name in names[:1500]])
    assert sum(len(one[0]) for one in read if one is not None) > REQUEST_BYTES_MAX


async def test_failed_multi_changes_nothing_and_names_failed_operation(world: World) -> None:
    zk = await world.connect()
    await zk.create("/epoch", b"1")
    await zk.create("/t/child", make_parents=True)
    before = await zk.get("/epoch"), await zk.get("/t"), await zk.children("/t"), await zk.children("/")
    harmless = [Set("/epoch", b"2", 0), Create("/t/new", b""), Delete("/t/child"), Set("/epoch", b"3", 1)]
    for culprit, kind in [
        (Check("/epoch", 0), BadVersion),  # the first operation of this very multi has raised it
        (Check("/none", 0), NoNode),
        (Set("/t", b"", 5), BadVersion),
        (Create("/t/new", b""), NodeExists),
        (Create("/none/x", b""), NoNode),
        (Delete("/none"), NoNode),
        (Delete("/t"), NotEmpty),
    ]:
        with pytest.raises(kind) as raised:
            await zk.multi([*harmless, culprit, Create("/after", b""), Check("/none", 3)])
        assert (raised.value.index, raised.value.path) == (4, culprit.path)
        assert before == (await zk.get("/epoch"), await zk.get("/t"), await zk.children("/t"), await zk.children("/"))
    with pytest.raises(BadVersion) as fenced:
        await zk.multi([Check("/epoch", 1), Set("/t", b"written by a deposed controller")])
    assert (fenced.value.index, fenced.value.path) == (0, "/epoch")


async def test_failed_multi_fires_no_watch(world: World) -> None:
    zk, other = await world.connect(), await world.connect()
    await zk.create("/t", b"old")
    seen = Seen[WatchEvent]()
    await other.get("/t", seen)
    await other.children("/", seen)
    await answer_of(zk.multi([Set("/t", b"new"), Create("/u", b""), Check("/none", 0)]))
    await zk.set("/t", b"newer")
    await seen.until(WatchEvent("/t", "changed"))
    assert seen == [WatchEvent("/t", "changed")]


# ---------------------------------------------------------------------------------------------- sessions


async def test_ephemeral_znodes_are_deleted_when_session_closes(world: World) -> None:
    zk, other = await world.connect(), await world.connect()
    await other.create("/p")
    await zk.create("/p/e", ephemeral=True)
    assert await answer_of(zk.create("/p/e/child")) is NoChildrenForEphemerals
    seen, unheard, events = Seen[WatchEvent](), Seen[WatchEvent](), Seen[SessionEvent]()
    await other.exists("/p/e", seen)
    await zk.get("/p", unheard)
    zk.on_session(events)
    await zk.close()
    await seen.until(WatchEvent("/p/e", "deleted"))
    await events.until(SessionEvent.CLOSED)
    assert await other.children("/p") == []
    assert await answer_of(zk.get("/p")) is SessionExpired
    await zk.close()  # again: nothing
    assert (events, unheard) == ([SessionEvent.CLOSED], [])


async def test_expired_session_stays_expired(world: World) -> None:
    zk, other = await world.connect(), await world.connect()
    await zk.create("/e", ephemeral=True)
    events, watch, gone = Seen[SessionEvent](), Seen[WatchEvent](), Seen[WatchEvent]()
    zk.on_session(events)
    await zk.exists("/watched", watch)
    await other.exists("/e", gone)
    await world.expire(zk)
    await gone.until(WatchEvent("/e", "deleted"))
    await events.until(SessionEvent.EXPIRED)
    await watch.until(WatchEvent(None, "lost"))
    for call in (zk.get("/"), zk.create("/e", ephemeral=True), zk.multi([Create("/e", b"", ephemeral=True)])):
        assert await answer_of(call) is SessionExpired
    assert await other.exists("/e") is None
    assert events[-1] is SessionEvent.EXPIRED
    assert watch == [WatchEvent(None, "lost")]
    await zk.close()
    assert events.count(SessionEvent.CLOSED) == 0
    newer = await world.connect()
    assert newer.session_id != zk.session_id


async def test_suspended_session_loses_watches_and_continues(world: World) -> None:
    zk, other = await world.connect(), await world.connect()
    await zk.create("/e", b"mine", ephemeral=True)
    order: Seen[SessionEvent | WatchEvent] = Seen()
    zk.on_session(order)
    await zk.get("/e", order)
    await world.suspend(zk)
    await order.until(WatchEvent(None, "lost"))
    assert order == [SessionEvent.SUSPENDED, WatchEvent(None, "lost")]
    waiting = asyncio.create_task(zk.get("/e"))
    await other.set("/e", b"theirs")
    assert not waiting.done()
    await world.resume(zk)
    async with asyncio.timeout(PATIENCE_S):
        assert (await waiting)[0] == b"theirs"
    await order.until(SessionEvent.CONNECTED)
    assert order[2:] == [SessionEvent.CONNECTED]  # the lost watch stays lost
    stat = await other.exists("/e")
    assert stat is not None
    assert stat.ephemeral_owner == zk.session_id


async def test_executed_request_may_lose_its_response(world: World) -> None:
    zk, other = await world.connect(), await world.connect()
    seen = Seen[WatchEvent]()
    await other.exists("/done", seen)
    ops = [Create("/done", b"", ephemeral=True)]
    carried_out = seen.until(WatchEvent("/done", "created"))
    assert await answer_of(world.lose_answer(zk, zk.multi(ops), carried_out)) is ConnectionLoss
    await world.resume(zk)
    async with asyncio.timeout(PATIENCE_S):
        stat = await zk.exists("/done")
    assert stat is not None
    assert stat.ephemeral_owner == zk.session_id  # how a candidate finds out that it has won after all


async def test_long_suspended_session_expires_and_learns_it_on_reconnect(world: World) -> None:
    """A zombie: until it reconnects, it does not know that its session was replaced."""
    zk, other = await world.connect(session_timeout_ms=3000), await world.connect()
    await zk.create("/leader", ephemeral=True)
    events, vacant = Seen[SessionEvent](), Seen[WatchEvent]()
    zk.on_session(events)
    await other.exists("/leader", vacant)
    await world.suspend(zk)
    waiting = asyncio.create_task(answer_of(zk.set("/leader", b"I still lead")))
    await vacant.until(WatchEvent("/leader", "deleted"))
    await other.create("/leader", b"me", ephemeral=True)
    assert SessionEvent.EXPIRED not in events
    await world.resume(zk)
    await events.until(SessionEvent.EXPIRED)
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting in (SessionExpired, ConnectionLoss)
    assert (await other.get("/leader"))[0] == b"me"
