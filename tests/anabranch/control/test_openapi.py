"""The OpenAPI document has every route, and every response of a running cluster matches its schema."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
import pytest

from anabranch.control.instance_routes import INSTANCE_ROUTES
from anabranch.control.openapi import FILE, JSON, TAGS, document, examples, operation_id, response_type, tag_of
from anabranch.control.routes import ROUTES
from anabranch.control.wait_conditions import WORDS
from anabranch.dashboard.rows import KINDS
from anabranch.journal.query import WORDS as JOURNAL_WORDS
from anabranch.proxy.control import PROXY_ROUTES
from tests.anabranch.control.recorded import WALK, Ask, cluster, walk

OPEN = ("EventRow",)
"""What may have more fields than are declared."""


@cache
def told() -> dict[str, Any]:
    return document(ROUTES, "1.2.3")


def operations() -> dict[str, dict[str, Any]]:
    return {way["operationId"]: way for ways in told()["paths"].values() for way in ways.values()}


@cache
def closed_components() -> dict[str, Any]:
    """The components, in which no object has a field that is not declared."""
    components = copy.deepcopy(told()["components"])
    for name, schema in components["schemas"].items():
        if name not in OPEN:
            schema["additionalProperties"] = False
    return components


def check(value: Any, schema: dict[str, Any], what: str) -> None:
    validator = jsonschema.Draft202012Validator({**schema, "components": closed_components()})
    error = jsonschema.exceptions.best_match(validator.iter_errors(value))
    assert error is None, f"{what}: {error.json_path} {error.message[:500]}"


def check_answer(name: str, answer: Any) -> None:
    """Hold an answer against the schema of its operation."""
    (kind, media), *_ = operations()[name]["responses"]["200"]["content"].items()
    if kind == FILE:
        assert isinstance(answer, bytes) and answer
        return
    check(answer, media["schema"], name)
    if name.endswith("DashboardRows"):
        for key, row in answer["rows"].items():
            check(row, row_schema(key), key)


def row_schema(key: str) -> dict[str, Any]:
    """The schema of the dashboard's rows of this kind: more exact than that of all rows."""
    kind = KINDS[key.partition("/")[0]]
    if not hasattr(kind, "__name__") or kind.__name__ not in closed_components()["schemas"]:
        return {
            "type": "object",
            "additionalProperties": {"type": "object", "additionalProperties": {"type": "integer"}},
        }
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def test_document_has_every_route() -> None:
    assert told()["info"]["version"] == "1.2.3"
    found = [(method.upper(), path) for path, ways in told()["paths"].items() for method in ways]
    assert sorted(found) == sorted((one.method, one.path) for one in ROUTES)
    assert len(operations()) == len(found), "each operation has a name of its own"
    assert all(name.isalpha() for name in operations())
    kill = told()["paths"]["/v1/nodes/{node}/kill"]["post"]
    assert [(one["name"], one["in"], one["required"]) for one in kill["parameters"]] == [("node", "path", True)]
    wait = told()["paths"]["/v1/wait"]["get"]
    assert {one["name"]: one["schema"].get("type") for one in wait["parameters"]}["partition"] == "integer"
    body = told()["components"]["schemas"]["NewTopicBody"]
    assert set(body["properties"]) == {"topic", "partitions", "replicas", "configs"} and body["required"] == ["topic"]


def test_every_response_parameter_and_body_has_a_type() -> None:
    for name, one in operations().items():
        assert len(one["responses"]["200"]["content"]) == 1, f"{name}: clients would make a union of it"
        for media in one["responses"]["200"]["content"].values():
            assert media["schema"], f"{name} declares no type: give its handler a return annotation"
        for parameter in one["parameters"]:
            assert parameter["description"] and parameter["schema"], (name, parameter)
            assert parameter.get("explode", True) == (parameter["schema"].get("type") != "array")
        for media in one.get("requestBody", {"content": {}})["content"].values():
            assert media["schema"], name


def unions(schema: Any) -> Iterator[dict[str, Any]]:
    """Every union of several types besides null, in each of its places."""
    if isinstance(schema, dict) and sum(one != {"type": "null"} for one in schema.get("anyOf", ())) > 1:
        yield schema
    for one in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from unions(one)


def test_union_of_several_fields_has_a_title_so_that_clients_do_not_name_it_after_one() -> None:
    places = Counter(json.dumps(one["anyOf"]) for one in unions(told()))
    shared = [one for one in unions(told()) if places[json.dumps(one["anyOf"])] > 1]
    assert {one.get("title") for one in shared} == {"RecordContent"}


def test_wait_and_journal_words_are_parameters() -> None:
    for name, words, more in (
        ("waitForState", WORDS, {"timeout"}),
        ("getJournal", JOURNAL_WORDS, {"bytes"}),
        ("getCapture", JOURNAL_WORDS, set()),
        ("waitForExchanges", JOURNAL_WORDS, {"count", "timeout"}),
    ):
        assert {one["name"] for one in operations()[name]["parameters"]} == {*words, *more}


def test_each_path_has_its_most_specific_tag() -> None:
    assert tag_of("/v1/state") == "cluster" and tag_of("/v1/state/snapshots") == "snapshots"
    assert {tag_of(route.path) for route in (*ROUTES, *INSTANCE_ROUTES)} == set(TAGS)
    assert {one["name"] for one in told()["tags"]} == set(TAGS) - {"streams"}


def test_document_is_valid_openapi() -> None:
    validator = jsonschema.Draft202012Validator
    for schema in told()["components"]["schemas"].values():
        validator.check_schema(schema)
    text = json.dumps(told())
    for reference in {one.split('"')[0] for one in text.split('"$ref": "')[1:]}:
        assert reference.removeprefix("#/components/schemas/") in told()["components"]["schemas"], reference
    assert told()["servers"] == [{"url": "http://127.0.0.1:9190"}]


def test_each_operation_has_an_example_that_matches_its_schema() -> None:
    assert examples().keys() == operations().keys(), "run python -m tests.anabranch.control.recorded"
    for name, example in examples().items():
        operation = operations()[name]
        if "response" in example:
            check_answer(name, example["response"])
        parameters = {one["name"]: one for one in operation["parameters"]}
        for word, value in {**example.get("path", {}), **example.get("query", {})}.items():
            check(value, parameters[word]["schema"], f"{name} {word}")
            assert parameters[word]["example"] == value
        assert {one for one, row in parameters.items() if row["required"]} <= {
            *example.get("path", {}),
            *example.get("query", {}),
        }
        body = operation.get("requestBody", {}).get("content", {}).get(JSON)
        assert ("body" in example) == (body is not None), name
        if body is not None:
            check(example["body"], body["schema"], f"{name} body")


def test_operations_refused_by_proxy_have_no_success_response() -> None:
    paths = document(PROXY_ROUTES, "1")["paths"]
    assert paths["/v1/clock"]["get"]["responses"].keys() == {"default"}
    assert paths["/v1/faults"]["get"]["responses"].keys() == {"200", "default"}
    nodes = next(one for one in PROXY_ROUTES if one.path == "/v1/nodes")
    assert operation_id(nodes) == "getNodes" and response_type(nodes) != response_type(ROUTES[1])


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[str, str]]:
    with cluster("--port", "0", "--control", "127.0.0.1:0") as found:
        yield found


@pytest.mark.processes
def test_every_response_of_a_running_cluster_matches_its_schema(running: tuple[str, str]) -> None:
    kinds = set()
    for ask, _, answer in walk(*running):
        check_answer(ask.operation, answer)
        if ask.operation == "getDashboardRows":
            kinds = {key.partition("/")[0] for key in answer["rows"]}
    assert {one.operation for one in WALK if isinstance(one, Ask)} == operations().keys()
    assert kinds >= {"node", "topic", "partition", "group", "commits", "transaction", "rule", "clock"}
