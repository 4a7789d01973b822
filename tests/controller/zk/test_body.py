"""A malformed field of a znode is reported with path and position."""

from __future__ import annotations

import pytest

from anabranch.controller.zk.body import Body, MalformedZnode


def test_fields_are_read_by_their_types() -> None:
    body = Body.parse("/p", b'{"n": 3, "long": "12", "t": "x", "b": true}')
    assert (body.integer("n"), body.long_text("long"), body.text("t"), body.boolean("b", False)) == (3, 12, "x", True)
    assert (body.integer("no", 7), body.text("no", "d"), body.boolean("no", False)) == (7, "d", False)


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (lambda body: body.integer("t"), 'n.t should be an integer, not "x"'),
        (lambda body: body.integer("b"), "n.b should be an integer, not true"),
        (lambda body: body.integer("no"), "n.no should be an integer, not null"),
        (lambda body: body.text("b"), "n.b should be a string, not true"),
        (lambda body: body.long_text("t"), 'n.t should be an integer in a string, not "x"'),
        (lambda body: body.boolean("t", True), 'n.t should be true or false, not "x"'),
    ],
)
def test_malformed_field_is_named_with_its_path(read: object, says: str) -> None:
    body = Body("/p", {"t": "x", "b": True}, "n.")
    with pytest.raises(MalformedZnode) as wrong:
        read(body)  # type: ignore[operator]
    assert str(wrong.value) == f"/p: {says}"


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000], ids=["empty", "cut", "no text", "deep"])
def test_invalid_json_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedZnode, match="/p: not JSON"):
        Body.parse("/p", data)


def test_json_that_is_no_object_is_malformed() -> None:
    with pytest.raises(MalformedZnode, match="/p: the body should be a JSON object, not 3"):
        Body.parse("/p", b"3")
