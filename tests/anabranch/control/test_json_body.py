"""An invalid body is refused with ValueError before a handler gets it."""

from __future__ import annotations

import pytest

from anabranch.control.json_body import DEPTH_MAX, INT_MAX, check_fields, parse_object


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[]", "is a JSON object"),
        (b"{", "Expecting"),
        (b"\xff\xfe", "decode|Expecting"),
        (b'{"a": 1e400}', "is finite, not 1e400"),
        (b'{"a": -1e400}', "is finite"),
        (b'{"a": NaN}', "has no NaN"),
        (b'{"a": -Infinity}', "has no -Infinity"),
        (b'{"a": %d}' % (INT_MAX + 1), "at most 64 bits"),
        (b'{"a": -1' + b"0" * 5000 + b"}", "at most 64 bits"),
        (b'{"a": "\\ud800"}', "surrogates not allowed"),
        (b'{"\\udfff": 1}', "surrogates not allowed"),
        (b'{"a": ' + b"[" * 100_000, "nested deeper"),
        (b'{"a":' * 100_000, "nested deeper"),
        (b'{"a": ' + b"[" * DEPTH_MAX + b"]" * DEPTH_MAX + b"}", "nested deeper"),
    ],
    ids=lambda one: str(one)[:24],
)
def test_unusable_body_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_object(content)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", {}),
        (b'{"a": [1, -2.5, null, true, {"b": "\xc3\xa4"}]}', {"a": [1, -2.5, None, True, {"b": "ä"}]}),
        (b'{"a": %d}' % INT_MAX, {"a": INT_MAX}),
    ],
)
def test_usable_body_is_parsed(content: bytes, expected: object) -> None:
    assert parse_object(content) == expected


FIELDS = {
    "name": {"type": "string"},
    "count": {"type": "integer"},
    "pace": {"type": ["string", "number"]},
    "rule": {"oneOf": []},
    "until": {"type": ["integer", "null"]},
}


@pytest.mark.parametrize(
    "body", [{"name": [1]}, {"name": None}, {"count": 2**31}, {"count": 1.0}, {"count": True}, {"pace": []}], ids=repr
)
def test_field_of_another_type_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"^(name|count|pace) is a .*, not "):
        check_fields(body, FIELDS)


def test_unknown_field_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ValueError, match=r"^the body has no 'counts'; did you mean count"):
        check_fields({"name": "a", "counts": 1}, FIELDS)
    with pytest.raises(ValueError, match=r"^the body has no 'count'; it has no fields"):
        check_fields({"count": 1}, {})


def test_field_of_its_type_is_accepted() -> None:
    check_fields({"name": "", "count": -(2**31), "pace": 0.5, "rule": [1], "until": None}, FIELDS)
    check_fields({"pace": "10x"}, FIELDS)
