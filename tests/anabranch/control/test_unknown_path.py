"""A path that does not exist gets the one that was meant."""

from __future__ import annotations

import pytest

from anabranch.control.routes import ROUTES
from anabranch.control.unknown_path import unknown_path

PATHS = [one.path for one in ROUTES]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/node", "/v1/nodes"),
        ("/nodes", "/v1/nodes"),
        ("/v1/nodes/", "/v1/nodes"),
        ("/v1/nosuch", "/v1/nodes"),
        ("/v1/node/2/kill", "/v1/nodes/2/kill"),
        ("/v1/nodes/2/kil", "/v1/nodes/2/kill"),
        ("/topics/orders", "/v1/topics/orders"),
        ("/v1/topic/orders/records", "/v1/topics/orders/records"),
        ("/v1/fault/slow/wait", "/v1/faults/slow/wait"),
    ],
)
def test_near_path_is_suggested_with_its_parameters(path: str, meant: str) -> None:
    assert unknown_path(path, PATHS) == f"there is no path {path}; did you mean {meant}?"


def test_unknown_path_refers_to_the_list() -> None:
    assert unknown_path("/favicon.ico", PATHS) == (
        "there is no path /favicon.ico; /docs and /v1/openapi.json list the paths"
    )
    assert len(unknown_path("/" + "x" * 5000, PATHS)) < 300
