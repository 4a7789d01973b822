"""Every route is told of, with each word that it takes."""

from __future__ import annotations

from anabranch.control.openapi import document
from anabranch.control.routes import ROUTES
from anabranch.control.wait_conditions import WORDS


def test_the_document_has_every_route() -> None:
    told = document(ROUTES, "1.2.3")
    assert told["info"]["version"] == "1.2.3"
    operations = [(method.upper(), path) for path, ways in told["paths"].items() for method in ways]
    assert sorted(operations) == sorted((one.method, one.path) for one in ROUTES)
    names = [way["operationId"] for ways in told["paths"].values() for way in ways.values()]
    assert len(set(names)) == len(names)
    kill = told["paths"]["/v1/nodes/{node}/kill"]["post"]
    assert [(one["name"], one["in"], one["required"]) for one in kill["parameters"]] == [("node", "path", True)]
    wait = told["paths"]["/v1/wait"]["get"]
    assert {one["name"] for one in wait["parameters"]} == {*WORDS, "timeout"}
    body = told["paths"]["/v1/topics"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == {"topic", "partitions", "replicas", "configs"}
