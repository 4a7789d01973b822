"""A Streams instance answers queries over HTTP, names owners, and refuses mistakes with what to write."""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from anabranch.clients.streams.config import StreamsConfig
from anabranch.clients.streams.queries import KeyQuery, Query, RangeQuery, WindowQuery
from anabranch.clients.streams.streams import Streams
from anabranch.clients.streams.tasks import State
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.windows import SessionWindows, TimeWindows
from anabranch.control.endpoint import Address, ControlEndpoint
from anabranch.control.events import Events
from anabranch.control.instance_routes import INSTANCE_ROUTES, RESULT_BYTES_MAX, ControlledInstance, parse_query
from anabranch.control.openapi import document
from tests.anabranch.runtime.test_sockets import ipv6
from tests.cases import for_each
from tests.clients.streams.world import streams_world, until

MINUTE_MS = 60_000
SETTINGS = StreamsConfig(application_id="app", bootstrap_servers="127.0.0.1:1", state_dir=Path("unused"))


def topology() -> Topology:
    application = Topology()
    views = application.stream("in")
    views.count("counts").to("out")
    views.windowed_by(TimeWindows(MINUTE_MS)).count("minutes")
    views.windowed_by(SessionWindows(gap_ms=1000)).count("visits")
    return application


@contextlib.asynccontextmanager
async def serving(streams: Streams, endpoint: ControlEndpoint) -> AsyncIterator[None]:
    async with streams, endpoint.serve(ControlledInstance(streams, Events()), lambda: INSTANCE_ROUTES):
        yield


async def ask(endpoint: ControlEndpoint, path: str) -> tuple[int, Any]:
    """The status and the body of a response, whose form is that of the OpenAPI document."""
    status, body = await asyncio.to_thread(request, endpoint.url + path)
    if status == 200:
        check(path, body)
    return status, body


def request(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.loads(refused.read())


def check(path: str, body: Any) -> None:
    told = document(INSTANCE_ROUTES, "1")
    words = path.partition("?")[0].split("/")[3:]
    template = "/v1/stores/{store}/owner" if "owner" in words else f"/v1/{path.split('/')[2].partition('?')[0]}"
    template += "/{store}" if len(words) == 1 else ""
    schema = told["paths"][template]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    for one in told["components"]["schemas"].values():
        one["additionalProperties"] = False
    jsonschema.validate(body, {**schema, "components": told["components"]})


async def test_keys_ranges_and_windows_are_found(tmp_path: Path) -> None:
    async with streams_world(tmp_path, topics=()) as world:
        await world.topics("in", "out", partitions=2)
        endpoint = ControlEndpoint(Address("127.0.0.1", 0), "")
        async with serving(streams := world.instance(topology()), endpoint):
            for key, timestamp_ms in ((b"home", 1), (b"home", MINUTE_MS + 1), (b"h\xc3\xbc", 2), (b"\xff", 3)):
                await world.producer.send("in", b"", key, timestamp_ms=timestamp_ms)
            await world.producer.flush()
            await until(partial(has_keys, streams, 3), "every key is counted")
            status, one = await ask(endpoint, "/v1/stores/counts?key=home")
            assert (status, one["rows"]) == (
                200,
                [{"key": "home", "value": "2", "timestamp": MINUTE_MS + 1, "window": None}],
            )
            assert [row["state"] for row in one["partitions"]] == ["running"] and one["partitions"][0]["lag"] == 0
            assert (await ask(endpoint, "/v1/stores/counts?key=absent"))[1]["rows"] == []
            assert (await ask(endpoint, "/v1/stores/counts?key=h%C3%BC"))[1]["rows"][0]["key"] == "hü"
            assert (await ask(endpoint, "/v1/stores/counts?key_base64=%2Fw=="))[1]["rows"][0]["key"] == {
                "base64": "/w=="
            }
            _, found = await ask(endpoint, "/v1/stores/counts")
            assert [row["value"] for row in found["rows"]] == ["2", "1", "1"] and not found["more"]
            _, found = await ask(endpoint, "/v1/stores/counts?first=hon&limit=1")
            assert [row["key"] for row in found["rows"]] == ["hü"] and found["more"]
            _, found = await ask(endpoint, "/v1/stores/minutes?key=home")
            assert [(row["value"], row["window"]) for row in found["rows"]] == [("1", [MINUTE_MS, 2 * MINUTE_MS])]
            _, found = await ask(endpoint, f"/v1/stores/visits?from_ms={MINUTE_MS}")
            assert [(row["key"], row["window"]) for row in found["rows"]] == [("home", [MINUTE_MS + 1] * 2)]
            assert (await ask(endpoint, "/v1/stores/counts/owner?key=home"))[1]["active"] == ""
            assert [(row["store"], row["kind"]) for row in (await ask(endpoint, "/v1/stores"))[1]] == [
                ("counts", "keys"),
                ("minutes", "windows"),
                ("visits", "sessions"),
            ]
            _, tasks = await ask(endpoint, "/v1/tasks")
            assert [(row["task"], row["state"], row["inputs"]) for row in tasks] == [
                ("0_0", "running", ["in-0"]),
                ("0_1", "running", ["in-1"]),
            ]
            assert sum(row["keys"] for row in tasks) >= 3 and {row["waits_for"] for row in tasks} == {""}


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=ipv6)])
async def test_instance_names_the_owner_of_a_key(host: str, tmp_path: Path) -> None:
    async with streams_world(tmp_path, topics=()) as world:
        await world.topics("in", "out", partitions=2)
        endpoints = {}
        async with contextlib.AsyncExitStack() as running:
            instances = []
            for name in ("one", "two"):
                endpoint = ControlEndpoint(Address(host, 0), "")
                endpoints[address := endpoint.url.removeprefix("http://")] = endpoint
                instances.append(world.instance(topology(), name, application_server=address))
                await running.enter_async_context(serving(instances[-1], endpoint))
            for number in range(10):
                await world.producer.send("in", b"", b"%d" % number)
            await world.producer.flush()
            await until(partial(are_shared, instances), "each instance has a task")
            await until(lambda: sum(map(keys_of, instances)) == 10, "every key is counted")
            answered = {}
            for number in range(10):
                for address, endpoint in endpoints.items():
                    status, body = await ask(endpoint, f"/v1/stores/counts?key={number}")
                    if status == 200:
                        assert body["rows"][0]["value"] == "1"
                        answered[number] = address
                    else:
                        (failure,) = body["failures"]
                        assert (status, failure["reason"]) == (409, "NOT_PRESENT")
                        assert f"is on the instance {failure['owner']}: query that one" in body["error"]
                        other = await ask(endpoints[failure["owner"]], f"/v1/stores/counts?key={number}")
                        assert other[0] == 200
                    owner = (await ask(endpoint, f"/v1/stores/counts/owner?key={number}"))[1]
                    assert answered.get(number, owner["active"]) == owner["active"]
            assert set(answered.values()) == set(endpoints)
            (one, *_), endpoint = instances, next(iter(endpoints.values()))
            _, found = await ask(endpoint, "/v1/stores/counts")
            assert len(found["rows"]) == keys_of(one) and [row["reason"] for row in found["failures"]] == [
                "NOT_PRESENT"
            ]
            await one.stop()
            status, body = await ask(endpoint, "/v1/stores/counts?key=1")
            assert status == 409 and "does not run" in body["error"]
            assert (await ask(endpoint, "/v1/stores/counts/owner?key=1"))[0] == 409


def keys_of(streams: Streams) -> int:
    return sum(task.state_manager.disk.entries("counts") for task in streams.tasks.values())


def has_keys(streams: Streams, count: int) -> bool:
    return keys_of(streams) == count


def are_shared(instances: list[Streams]) -> bool:
    """Whether each instance has a task that runs, and knows that of the other one."""
    if any([task.state for task in one.tasks.values()] != [State.RUNNING] for one in instances):
        return False
    named = [[one.query_metadata_for_key("counts", b"%d" % key).active for key in range(10)] for one in instances]
    return named[0] == named[1] and set(named[0]) == {one.config.application_server for one in instances}


@for_each(
    [
        ("/v1/stores/count?key=a", 404, "there is no store 'count'; did you mean counts?"),
        ("/v1/stores/count/owner?key=a", 404, "did you mean counts?"),
        ("/v1/stores/counts?kez=a", 400, "did you mean key?"),
        ("/v1/stores/counts?key=a&from_ms=1", 400, "from_ms is no parameter of this store; it has no windows"),
        ("/v1/stores/minutes?first=a", 400, "first is no parameter of this store; it has windows: from_ms and to_ms"),
        ("/v1/stores/counts/owner", 400, "name the key: ?key=KEY"),
        ("/v1/store", 404, "did you mean"),
    ]
)
async def test_mistakes_are_refused_with_what_to_write(path: str, status: int, complaint: str) -> None:
    endpoint = ControlEndpoint(Address("127.0.0.1", 0), "")
    streams = Streams(topology(), SETTINGS)
    async with endpoint.serve(ControlledInstance(streams, Events()), lambda: INSTANCE_ROUTES):
        found, body = await ask(endpoint, path)
        assert found == status and complaint in body["error"], body


@for_each(
    [
        ({"key": "a"}, False, KeyQuery(b"a")),
        ({"key_base64": "/w=="}, False, KeyQuery(b"\xff")),
        ({}, False, RangeQuery(bytes_max=RESULT_BYTES_MAX)),
        ({"first": "a", "last": "b", "limit": "7"}, False, RangeQuery(b"a", b"b", 7, RESULT_BYTES_MAX)),
        ({}, True, WindowQuery(bytes_max=RESULT_BYTES_MAX)),
        ({"key": "a", "from_ms": "5", "to_ms": "6", "limit": "1"}, True, WindowQuery(5, 6, b"a", 1, RESULT_BYTES_MAX)),
    ]
)
def test_parameters_make_a_query(parameters: Mapping[str, str], windowed: bool, query: Query) -> None:
    assert parse_query(parameters, windowed=windowed) == query


@for_each(
    [
        ({"key": "a", "key_base64": "/w=="}, "two ways to write one key"),
        ({"key_base64": "%"}, "key_base64: "),
        ({"key": "a", "last": "b"}, "a query is for a key or for a range: leave out key or last"),
        ({"limit": "-1"}, "limit is a whole number, not '-1'"),
        ({"limit": "0"}, "limit is 1 or more"),
        ({"limit": "10001"}, "limit is at most 10000, not 10001"),
    ]
)
def test_invalid_parameters_are_refused(parameters: Mapping[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_query(parameters, windowed=False)
