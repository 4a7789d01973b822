"""The OpenAPI description of the control plane, generated from its routes.

The type of a response is the return annotation of the route's handler; the types of query and body are TypedDicts of
the route. So mypy and this document know the same types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final, NoReturn, get_args, get_origin, get_type_hints

from anabranch.control.events import EventRow
from anabranch.control.json_schema import LISTS, UNIONS, Schema, Schemas, fields, required
from anabranch.control.route import Route
from anabranch.control.topic_routes import Content
from anabranch.faults import rule_json
from anabranch.faults.rule_fields import RuleFields

FILE: Final = "application/octet-stream"
JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
STREAMED: Final = ("/v1/events", "/v1/watch")
"""The paths that also send server-sent events, besides routes with a `stream`."""
DEFAULT_URL: Final = "http://127.0.0.1:9190"
PATH_WORDS: Final[Mapping[str, tuple[type, str]]] = {
    "node": (int, "the node's id"),
    "topic": (str, "the topic's name"),
    "group": (str, "the group's id"),
    "partition": (int, "the partition"),
    "name": (str, "the snapshot's name"),
    "fork": (int, "the fork's number"),
    "rule": (str, "the rule's name"),
    "number": (int, "the number of the exchange"),
    "client": (str, "a client id or client instance id"),
    "story": (str, "the story's name"),
    "question": (int, "the number of the question"),
    "store": (str, "the name of the store"),
}
TAGS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "nodes": ("Kill, stop, start and freeze nodes, and their ZooKeeper sessions.", ("nodes",)),
    "topics": ("Create, resize and delete topics, and write and read their records.", ("topics",)),
    "cluster": (
        "The cluster's state, groups and events, and waits for conditions.",
        ("state", "groups", "wait", "events", "capabilities", "agent"),
    ),
    "access": ("ACLs, users with SCRAM credentials, and quotas.", ("acls", "users", "quotas")),
    "snapshots": ("Reset the cluster, take and restore snapshots, fork.", ("state/",)),
    "faults": ("Rules that fail, hold, delay or damage single requests.", ("faults",)),
    "clock": ("The cluster's time.", ("clock",)),
    "journal": ("The last requests with their responses.", ("journal",)),
    "telemetry": ("The metrics that clients push (KIP-714).", ("telemetry",)),
    "dashboard": ("The rows that the dashboard shows, and ZooKeeper's tree.", ("watch", "history", "zookeeper")),
    "streams": ("The tasks of a Streams instance, and queries of its stores.", ("tasks", "stores")),
    "tour": ("Stories that drive the cluster step by step.", ("tour",)),
}
"""Tag -> its meaning, and the beginnings of its paths."""
ERROR: Final[Schema] = {
    "type": "object",
    "description": "A refusal.",
    "properties": {"error": {"type": "string", "description": "the reason, and often the remedy"}},
    "required": ["error"],
}


def document(routes: Collection[Route], version: str, url: str = DEFAULT_URL) -> Schema:
    """Build an OpenAPI 3.1 document for the control plane at a URL."""
    schemas = route_schemas()
    schemas.components["Error"] = ERROR
    paths: dict[str, dict[str, Any]] = {}
    used = {tag_of(route.path) for route in routes}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Anabranch",
            "version": version,
            "summary": "The control plane of a cluster.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": url}],
        "tags": [{"name": name, "description": meaning} for name, (meaning, _) in TAGS.items() if name in used],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "the token of --control-token, if there is one",
                }
            },
        },
    }


def route_schemas() -> Schemas:
    """The empty collection of schemas for routes; a rule's schema comes from its fields."""
    return Schemas(
        {RuleFields: ("Rule", rule_json.schema())}, extensible=(EventRow,), titles={Content: "RecordContent"}
    )


def response_type(route: Route) -> Any:
    """The type of a route's response; `NoReturn` if it is always refused."""
    return get_type_hints(route.handler, include_extras=True)["return"]


def operation_id(route: Route) -> str:
    """The name of a route's operation, for generated clients: `killNode`."""
    first, *others = route.handler.__name__.split("_")
    return first + "".join(map(str.capitalize, others))


@cache
def examples() -> Mapping[str, Any]:
    """The recorded requests and responses: operation -> `path`, `query`, `body`, `response`."""
    found: dict[str, Any] = json.loads(resources.files("anabranch.control").joinpath("examples.json").read_bytes())
    return found


def _operation(route: Route, schemas: Schemas) -> Schema:
    name = operation_id(route)
    example = examples().get(name, {})
    operation: Schema = {
        "operationId": name,
        "tags": [tag_of(route.path)],
        "summary": route.summary,
        "parameters": [*_path_parameters(route, schemas, example), *_query_parameters(route, schemas, example)],
        "responses": {
            "default": {
                "description": "refused",
                "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
            }
        },
    }
    if (kind := response_type(route)) is not NoReturn:
        content = FILE if route.gives_file else JSON
        media: Schema = {
            content: {"schema": schemas.of(kind) if content == JSON else {"type": "string", "format": "binary"}}
        }
        if "response" in example:
            media[content]["example"] = example["response"]
        if (
            route.path in STREAMED or route.stream
        ):  # a second media type would be a second type of the response in generated clients
            operation["description"] = f"With `Accept: {EVENT_STREAM}`: server-sent events without an end."
        operation["responses"] = {"200": {"description": "done", "content": media}, **operation["responses"]}
    if route.body is not None:
        body: Schema = {"schema": schemas.of(route.body)}
        if "body" in example:
            body["example"] = example["body"]
        operation["requestBody"] = {"required": bool(required(route.body)), "content": {JSON: body}}
    if route.takes_file:
        binary = {"schema": {"type": "string", "format": "binary"}}
        operation["requestBody"] = {"required": True, "content": {FILE: binary}}
    return operation


def tag_of(path: str) -> str:
    """The tag of a path: that with the longest beginning."""
    rest = path.removeprefix("/v1/")
    begins = [(len(begin), tag) for tag, (_, found) in TAGS.items() for begin in found if rest.startswith(begin)]
    return max(begins)[1]


def _path_parameters(route: Route, schemas: Schemas, example: Mapping[str, Any]) -> list[Schema]:
    found = []
    for name in re.findall(r"{(\w+)}", route.path):
        kind, meaning = PATH_WORDS[name]
        one = {"name": name, "in": "path", "required": True, "description": meaning, "schema": schemas.of(kind)}
        found.append(one | _example(name, example.get("path", {})))
    return found


def _query_parameters(route: Route, schemas: Schemas, example: Mapping[str, Any]) -> list[Schema]:
    needed = required(route.query)
    found = []
    for name, hint in fields(route.query).items():
        schema = _query_schema(hint, schemas)
        one: Schema = {"name": name, "in": "query", "required": name in needed}
        meaning = schema.pop("description", "") or route.query_help.get(name, "")
        one |= {"description": meaning, "schema": schema}
        if schema.get("type") == "array":
            one |= {"style": "form", "explode": False}
        found.append(one | _example(name, example.get("query", {})))
    return found


def _query_schema(hint: Any, schemas: Schemas) -> Schema:
    """The schema of a query parameter, which is text: one value is a list, too, and a number or text is text."""
    parts: Sequence[Any] = get_args(hint) if get_origin(hint) in UNIONS else ()
    listed = next((one for one in parts if get_origin(one) in LISTS), None)
    return schemas.of(hint if not parts else str if listed is None else listed)


def _example(name: str, examples: Mapping[str, Any]) -> Schema:
    return {"example": examples[name]} if name in examples else {}
