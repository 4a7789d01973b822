"""Makes JSON Schemas (2020-12) of type annotations, for OpenAPI 3.1. Pure.

A TypedDict becomes a named component with its docstring as description. A text in `Annotated[int, "..."]` becomes the
description of a field.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

Schema = dict[str, Any]

SIMPLE: Final[Mapping[object, Mapping[str, str]]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number", "format": "double"},
    str: {"type": "string"},
    types.NoneType: {"type": "null"},
}
LISTS: Final = (list, tuple, Sequence)
OBJECTS: Final = (dict, Mapping)
UNIONS: Final = (Union, types.UnionType)


class Schemas:
    """The schemas of annotations, which share the components that they name.

    Args:
        made: TypedDicts whose schemas are made elsewhere: their names and schemas.
        extensible: TypedDicts whose objects may have further fields.
        titles: Unions with their titles, by which generated clients name them; else they take the first field's name.
    """

    def __init__(
        self,
        made: Mapping[type, tuple[str, Schema]] = types.MappingProxyType({}),
        extensible: Collection[type] = (),
        titles: Mapping[Any, str] = types.MappingProxyType({}),
    ) -> None:
        self.components: dict[str, Schema] = {}
        """The components by name."""
        self._made = made
        self._extensible = extensible
        self._titles = titles
        self._names: dict[type, str] = {}

    def of(self, hint: Any) -> Schema:
        """The schema of an annotation. Raises TypeError if JSON has no such type."""
        origin, parts = get_origin(hint), get_args(hint)
        if hint is Any:
            return {}
        if hint in SIMPLE or hint is None:
            return dict(SIMPLE[types.NoneType if hint is None else hint])
        if origin is Annotated:
            return {**self.of(parts[0]), "description": parts[1]}
        if origin in (NotRequired, Required):
            return self.of(parts[0])
        if origin is Literal:
            return {"type": "string", "enum": list(parts)}
        if origin in UNIONS:
            title = {"title": self._titles[hint]} if hint in self._titles else {}
            return {**self._union(parts), **title}
        if origin in LISTS:
            return {"type": "array", "items": self.of(parts[0])}
        if origin in OBJECTS:
            return {"type": "object", "additionalProperties": self.of(parts[1]) or True}
        if typing.is_typeddict(hint):
            return {"$ref": f"#/components/schemas/{self.name(hint)}"}
        raise TypeError(f"JSON has no type for {hint!r}")

    def name(self, kind: type) -> str:
        """The name of a TypedDict's component."""
        if kind not in self._names:
            name, schema = self._made.get(kind, (kind.__name__, None))
            if name in self.components:
                raise TypeError(f"two types are named {name}")
            self._names[kind] = name
            self.components[name] = {}  # a type may refer to itself
            self.components[name] = schema or self._object(kind)
        return self._names[kind]

    def properties(self, kind: type) -> dict[str, Schema]:
        """The schemas of a TypedDict's fields."""
        found: dict[str, Schema] = self.components[self.name(kind)]["properties"]
        return found

    def _object(self, kind: type) -> Schema:
        schema: Schema = {"type": "object", "description": inspect.getdoc(kind) or ""}
        schema["properties"] = {name: self.of(hint) for name, hint in fields(kind).items()}
        if needed := required(kind):
            schema["required"] = needed
        if kind in self._extensible:
            schema["additionalProperties"] = True
        return schema

    def _union(self, parts: tuple[Any, ...]) -> Schema:
        schemas = [self.of(one) for one in parts]
        if any(not one for one in schemas):
            return {}
        if all(one.keys() <= {"type", "format"} for one in schemas):
            kinds = [one["type"] for one in schemas]
            only = [one for one in schemas if one["type"] != "null"]
            return {**(only[0] if len(only) == 1 else {}), "type": kinds}
        return {"anyOf": schemas}


def fields(kind: type) -> dict[str, Any]:
    """The fields of a TypedDict with their annotations."""
    return get_type_hints(kind, include_extras=True)


def required(kind: type) -> list[str]:
    """The fields that an object of a TypedDict always has, in the order of their declaration."""
    always: Collection[str] = getattr(
        kind, "__required_keys__", ()
    )  # has the NotRequired ones, if annotations are text
    return [name for name, hint in fields(kind).items() if name in always and get_origin(hint) is not NotRequired]
