"""The OpenAPI description of the control plane, generated from its routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from anabranch.control.route import Route

FILE: Final = "application/octet-stream"


def document(routes: Iterable[Route], version: str) -> dict[str, Any]:
    """Build an OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Anabranch",
            "version": version,
            "summary": "What may be done to a cluster, and asked of it.",
        },
        "paths": paths,
    }


def _operation(route: Route) -> dict[str, Any]:
    named = re.findall(r"{(\w+)}", route.path)
    parameters = [{"name": one, "in": "path", "required": True, "schema": {"type": "string"}} for one in named]
    parameters += [
        {"name": one, "in": "query", "required": False, "description": text, "schema": {"type": "string"}}
        for one, text in route.query.items()
    ]
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "done", "content": {FILE if route.gives_file else "application/json": {}}},
            "default": {
                "description": "refused",
                "content": {
                    "application/json": {
                        "schema": {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
                    }
                },
            },
        },
    }
    if route.body:
        properties = {
            name: {"type": kind} if isinstance(kind, str) else dict(kind) for name, kind in route.body.items()
        }
        operation["requestBody"] = {
            "content": {"application/json": {"schema": {"type": "object", "properties": properties}}}
        }
    if route.takes_file:
        operation["requestBody"] = {"content": {FILE: {}}}
    return operation
