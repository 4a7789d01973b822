"""The simulated network behaves like TCP, and fails on demand."""

from __future__ import annotations

import asyncio

import pytest

from tests.sim.world import World, simulated


@simulated
async def test_bytes_arrive_in_order_and_in_other_pieces(world: World) -> None:
    world.network.split_chance = 0.5
    transport = await world.connected()
    for number in range(50):
        transport.write(b"word %d," % number)
    await asyncio.sleep(5)
    assert world.said() == b"".join(b"WORD %d," % number for number in range(50))
    assert world.network.fired["split read"]


@simulated
async def test_blocked_link_delivers_late_and_silently(world: World) -> None:
    transport = await world.connected()
    world.network.block("client", "server")
    transport.write(b"late")
    await asyncio.sleep(60)
    assert world.heard == []
    world.network.heal("client", "server")
    await asyncio.sleep(1)
    assert world.said() == b"LATE"


@simulated
async def test_one_way_block_delivers_requests_and_delays_responses(world: World) -> None:
    transport = await world.connected()
    world.network.block("server", "client")
    transport.write(b"x")
    await asyncio.sleep(10)
    assert world.heard == []
    world.network.heal("server", "client")
    await asyncio.sleep(1)
    assert world.said() == b"X"


def test_reset_cuts_a_frame_in_the_middle() -> None:
    async def story(world: World) -> None:
        transport = await world.connected()
        world.network.slow("client", "server", 500)
        transport.write(bytes(1000))
        world.network.reset_some("client", 1.0)
        await asyncio.sleep(5)
        assert isinstance(world.heard[-1], ConnectionResetError)
        assert world.network.fired["frame cut"]
        assert len(world.said()) < 1000

    World(3).run(story)


def test_dead_process_resets_and_powered_off_machine_stays_silent_until_it_returns() -> None:
    for silently in (False, True):

        async def story(world: World, silently: bool = silently) -> None:
            transport = await world.connected()
            world.loop.kill(world.server)
            world.network.process_died(world.server, silently=silently)
            transport.write(b"anybody?")
            await asyncio.sleep(30)
            assert bool(world.heard) is not silently
            if silently:
                world.network.host_is_up("server")
                await asyncio.sleep(1)
            assert isinstance(world.heard[-1], ConnectionResetError)

        World().run(story)


@simulated
async def test_connect_to_dead_host_is_refused(world: World) -> None:
    await world.connected()
    world.loop.kill(world.server)
    world.network.process_died(world.server, silently=False)

    async def connect() -> None:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.get_running_loop().create_connection(asyncio.Protocol, "server", world.port)

    await world.loop.spawn(world.client, connect())


@simulated
async def test_snared_request_arrives_last_before_its_connection_ends(world: World) -> None:
    first = await world.connected()
    snared = world.network.snare("client", "server", int.from_bytes(b"bb", "big"))
    first.write(b"sizeaa, ")
    await asyncio.sleep(1)
    first.write(b"sizebb, ")
    await asyncio.sleep(1)
    second = await world.connected()
    second.write(b"sizebb again, ")
    first.abort()
    await asyncio.sleep(1)
    assert world.said() == b"SIZEAA, SIZEBB AGAIN, "
    (pipe,) = snared
    world.network.release(pipe, ends_after_s=1)
    await asyncio.sleep(0.5)
    assert not pipe.queue[0][1].startswith(b"size"), "it has arrived"
    assert pipe.target.process is world.server
    assert not pipe.target.closing, "and the server has time for it"
    await asyncio.sleep(1)
    assert pipe.target.closing
    assert not pipe.queue
