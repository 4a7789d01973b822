"""The declaration language: the result of `@message`, and what both codecs read."""

from __future__ import annotations

import copy
import dataclasses

import pytest

from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.wire import Int32, Kind, Text, always, constructor_of, fields_of, message, since, tagged


@message
class Point:
    x: Int32
    y: Int32 = since(2, absent=-1)
    names: list[Text] = tagged(7, since=3, absent=list)
    label: Text | None = always(absent=None, nullable_since=1)


def test_message_is_constructed_like_a_dataclass() -> None:
    point = Point(x=1)
    assert (point.x, point.y, point.names, point.label) == (1, -1, [], None)
    assert repr(Point(x=1, label="a")) == "Point(x=1, y=-1, names=[], label='a')"
    assert Point(x=1) == point and Point(x=2) != point and point != "Point"
    assert dataclasses.replace(point, y=5) == Point(x=1, y=5)
    assert copy.deepcopy(point) == point


def test_first_construction_is_as_strict_as_later_ones() -> None:
    @message
    class Fresh:
        x: Int32

    for _ in range(2):
        with pytest.raises(TypeError, match=r"Fresh\.__init__\(\) missing 1 required keyword-only argument: 'x'"):
            Fresh()  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
            Fresh(x=1, z=2)  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            Fresh(1)  # type: ignore[misc]


def test_constructor_creates_what_the_class_creates_and_is_as_strict() -> None:
    new_point = constructor_of(Point)
    assert new_point(x=1) == Point(x=1) and new_point(x=1, label="a", y=2) == Point(x=1, label="a", y=2)
    assert new_point(x=1, names=["n"]).names == ["n"]
    new_point(x=1).names.append("n")
    assert new_point(x=1).names == []
    with pytest.raises(TypeError, match=r"Point\(\) missing 1 required keyword-only argument: 'x'"):
        new_point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        new_point(x=1, z=2)  # type: ignore[call-arg]


def test_mutable_defaults_are_not_shared() -> None:
    one, two = Point(x=1), Point(x=1)
    one.names.append("n")
    assert two.names == []


def test_message_has_slots_and_no_hash() -> None:
    with pytest.raises(AttributeError):
        Point(x=1).z = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(x=1))


def test_field_metadata_of_messages_is_readable() -> None:
    x, y, names, label = fields_of(Point)
    assert (x.kind, x.nullable, x.default) == (Kind.INT32, False, dataclasses.MISSING)
    assert [y.exists(version) for version in (1, 2, 3)] == [False, True, True]
    assert (names.is_array, names.tag, names.absent_value()) == (True, 7, [])
    assert [label.may_be_null(version) for version in (0, 1)] == [False, True]
    topics = fields_of(MetadataRequest)[0]
    assert topics.struct is MetadataRequestTopic and not topics.may_be_null(0) and topics.may_be_null(1)
