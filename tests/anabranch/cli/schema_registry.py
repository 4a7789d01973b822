"""A schema registry that keeps its schemas in memory: the endpoints that serializers call.

It checks the compatibility of nothing, and gives each distinct schema an id, as the Confluent Schema Registry does.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

SUBJECT: Final = re.compile(r"/subjects/(?P<subject>[^/?]+)(?P<versions>/versions(/(?P<version>\w+))?)?")
SCHEMA: Final = re.compile(r"/schemas/ids/(?P<id>\d+)")
Answer = tuple[int, object]


class SchemaRegistry:
    """The schemas by id, and the ids of each subject's versions."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}

    def get(self, path: str) -> Answer:
        """Answer GET."""
        if found := SCHEMA.match(path):
            number = int(found["id"])
            if not 0 < number <= len(self.schemas):
                return 404, {"error_code": 40403, "message": "Schema not found"}
            return 200, self.schemas[number - 1]
        found = SUBJECT.match(path)
        if found is None or found["version"] is None:
            return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
        versions = self.subjects.get(found["subject"], [])
        if not versions:
            return 404, {"error_code": 40401, "message": f"Subject '{found['subject']}' not found."}
        version = len(versions) if found["version"] == "latest" else int(found["version"])
        return 200, self._row(found["subject"], version)

    def post(self, path: str, body: dict[str, Any]) -> Answer:
        """Answer POST: register a schema under a subject, or look it up there."""
        found = SUBJECT.match(path)
        assert found is not None
        schema = {"schema": body["schema"], "schemaType": body.get("schemaType", "AVRO")}
        versions = self.subjects.setdefault(found["subject"], [])
        known = self.schemas.index(schema) + 1 if schema in self.schemas else 0
        if known not in versions:
            if not found["versions"]:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            if not known:
                self.schemas.append(schema)
                known = len(self.schemas)
            versions.append(known)
        return 200, self._row(found["subject"], versions.index(known) + 1)

    def _row(self, subject: str, version: int) -> dict[str, Any]:
        number = self.subjects[subject][version - 1]
        return {"subject": subject, "version": version, "id": number, **self.schemas[number - 1]}


@contextlib.contextmanager
def schema_registry() -> Iterator[tuple[str, SchemaRegistry]]:
    """Serve a registry on a free port; the value is its URL, and what it holds."""
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(registry.get(self.path))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send(registry.post(self.path, body))

        def _send(self, answer: Answer) -> None:
            status, row = answer
            content = json.dumps(row).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", registry
        finally:
            server.shutdown()
            serving.join()
