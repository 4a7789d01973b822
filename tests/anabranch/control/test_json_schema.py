"""Each annotation that JSON can have becomes a schema; others are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from anabranch.control.json_schema import Schemas, required


class Leaf(TypedDict):
    """A leaf."""

    name: Annotated[str, "its name"]
    weight: NotRequired[float | None]


class Tree(TypedDict, total=False):
    """A tree."""

    trees: list[Tree]
    leaf: Leaf | None


class Oak(Leaf):
    """An oak."""

    rings: int


def other_leaf() -> type:
    class Leaf(TypedDict):
        a: int

    return Leaf


INTEGER = {"type": "integer", "format": "int64"}


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (bool, {"type": "boolean"}),
        (int, INTEGER),
        (None, {"type": "null"}),
        (Any, {}),
        (int | None, {"type": ["integer", "null"], "format": "int64"}),
        (str | float, {"type": ["string", "number"]}),
        (Any | None, {}),
        (Annotated[int, "so many"], {**INTEGER, "description": "so many"}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (list[list[int]], {"type": "array", "items": {"type": "array", "items": INTEGER}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (Mapping[str, int], {"type": "object", "additionalProperties": INTEGER}),
        (dict[str, Any], {"type": "object", "additionalProperties": True}),
        (Leaf | None, {"anyOf": [{"$ref": "#/components/schemas/Leaf"}, {"type": "null"}]}),
    ],
)
def test_annotation_is_converted_to_schema(hint: Any, schema: dict[str, Any]) -> None:
    assert Schemas().of(hint) == schema


def test_typed_dict_becomes_a_component_with_its_required_fields() -> None:
    schemas = Schemas(extensible=(Leaf,))
    assert schemas.of(Tree) == {"$ref": "#/components/schemas/Tree"}
    assert schemas.components.keys() == {"Tree", "Leaf"}
    assert "required" not in schemas.components["Tree"] and "additionalProperties" not in schemas.components["Tree"]
    leaf = schemas.components["Leaf"]
    assert (leaf["description"], leaf["required"], leaf["additionalProperties"]) == ("A leaf.", ["name"], True)
    assert leaf["properties"]["name"] == {"type": "string", "description": "its name"}
    assert required(Oak) == ["name", "rings"]


def test_external_schema_is_used() -> None:
    schemas = Schemas({Leaf: ("Blatt", {"type": "object", "properties": {"a": INTEGER}})})
    assert schemas.of(Leaf) == {"$ref": "#/components/schemas/Blatt"}
    assert schemas.properties(Leaf) == {"a": INTEGER}


def test_unsupported_type_is_refused() -> None:
    with pytest.raises(TypeError, match="JSON has no type for"):
        Schemas().of(bytes)


def test_two_types_of_one_name_are_refused() -> None:
    schemas = Schemas()
    schemas.of(Leaf)
    other = other_leaf()
    with pytest.raises(TypeError, match="two types are named Leaf"):
        schemas.of(other)
