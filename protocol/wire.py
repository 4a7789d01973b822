"""The declarations of messages: field types and version ranges.

A message is one dataclass for all of its versions (decision D2), made by `@message`. A field's *type* says how it looks
on the wire, its *default* says in which versions it exists and what its absence means:

    partition: Int32                                    every version, must be given
    current_leader_epoch: Int32 = since(9, absent=-1)   from v9 on; receivers of v0-v8 assume -1
    replica_id: Int32 = until(14, absent=-1)            up to v14
    cluster_id: Text | None = tagged(0, since=12)       a tagged field of the flexible versions
    topics: list[FetchTopic] | None = always(nullable_since=1)

`X | None` is nullable in every version unless `nullable_since` says otherwise. A field that a version does not have is
left out when that version is encoded, whatever its value: handlers fill in everything and let the version choose.

Nothing here touches bytes: `layout` derives the reference codec, `compiler` the fast one, both from `fields_of`.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, TypeVar

from anabranch.protocol.values import value, with_slots

LAST_VERSION: Final = 32767


class Kind(enum.Enum):
    """The layout of a primitive; the value is its `struct` format, or None when its length varies."""

    BOOLEAN = "?"
    INT8 = "b"
    INT16 = "h"
    UINT16 = "H"
    INT32 = "i"
    UINT32 = "I"
    INT64 = "q"
    FLOAT64 = "d"
    UUID = "16s"
    TEXT = "text"
    BYTES = "bytes"
    RECORDS = "records"

    @property
    def fixed(self) -> bool:
        """Whether every value takes the same number of bytes."""
        return self not in _VARIABLE


_VARIABLE: Final = frozenset({Kind.TEXT, Kind.BYTES, Kind.RECORDS})

Boolean = Annotated[bool, Kind.BOOLEAN]
Int8 = Annotated[int, Kind.INT8]
Int16 = Annotated[int, Kind.INT16]
UInt16 = Annotated[int, Kind.UINT16]
Int32 = Annotated[int, Kind.INT32]
UInt32 = Annotated[int, Kind.UINT32]
Int64 = Annotated[int, Kind.INT64]
Float64 = Annotated[float, Kind.FLOAT64]
Uuid = Annotated[bytes, Kind.UUID]
"""Sixteen raw bytes; `ZERO_UUID` means "none"."""
Text = Annotated[str, Kind.TEXT]
Bytes = Annotated[bytes, Kind.BYTES]
SECRET: Final = "secret"
SecretBytes = Annotated[bytes, Kind.BYTES, SECRET]
"""Secret bytes: in no repr, and in no display of messages."""
SecretText = Annotated[str, Kind.TEXT, SECRET]
"""Secret text, such as the value of a setting."""
Records = Annotated[bytes | bytearray | memoryview, Kind.RECORDS]
"""Record batches, passed through as the bytes they are (decision D9)."""

ZERO_UUID: Final = bytes(16)

Declared = TypeVar("Declared")


class EncodedElements(list[Any]):
    """The structs of an array together with their bytes at one version, for responses that repeat.

    The encoder uses the bytes, so nobody may change an element. A changed copy of the list has none. The class of the
    structs declares with `flexible_from` that it is also encoded on its own.
    """

    __slots__ = ("encoded", "version")

    def __init__(self, elements: Iterable[Any], version: int, encoded: bytes) -> None:
        super().__init__(elements)
        self.version = version
        self.encoded = encoded


@typing.dataclass_transform(kw_only_default=True)
def message(cls: type[Declared]) -> type[Declared]:
    """Create a dataclass with slots and keyword arguments, at a tenth of `dataclass`'s cost at import.

    A node imports some two hundred of these, and only decoders instantiate most of them, without `__init__`. So
    `__init__` is generated at its first call, and the rest is shared by all classes instead of compiled for each.
    """
    made = with_slots(cls, kw_only=True)
    for name, method in (("__init__", _first_init), ("__repr__", _repr), ("__eq__", _eq), ("__hash__", None)):
        setattr(made, name, method)
    return made


def _first_init(self: Any, /, **values: Any) -> None:
    cls = type(self)
    cls.__init__ = _write_setter(cls, f"{cls.__qualname__}.__init__", "self")
    cls.__init__(self, **values)


def constructor_of(cls: type[Declared]) -> type[Declared]:
    """Return a function that creates a message as its class does, in a third of the time.

    For handlers of frequent requests: a call of a class, unlike one of a function, collects its keyword arguments in a
    dictionary.
    """
    return typing.cast(type[Declared], _write_setter(cls, cls.__qualname__, "", "self = NEW(CLASS)", "return self"))


def _write_setter(cls: type[Any], name: str, first: str, begin: str = "pass", end: str = "pass") -> Callable[..., Any]:
    """Compile a function that sets the fields of `self` to its keyword arguments or their defaults."""
    parameters = [first] if first else []
    body = [begin]
    scope: dict[str, Any] = {"FRESH": object(), "CLASS": cls, "NEW": object.__new__}
    for field in dataclasses.fields(cls):
        if body == [begin]:
            parameters.append("*")
        parameter = source = field.name
        if field.default_factory is not dataclasses.MISSING:
            scope[f"make_{field.name}"] = field.default_factory
            parameter = f"{field.name}=FRESH"
            source = f"make_{field.name}() if {field.name} is FRESH else {field.name}"
        elif field.default is not dataclasses.MISSING:
            scope[f"default_{field.name}"] = field.default
            parameter = f"{field.name}=default_{field.name}"
        parameters.append(parameter)
        body.append(f"self.{field.name} = {source}")
    exec(f"def function({', '.join(parameters)}):\n    " + "\n    ".join([*body, end]), scope)
    function: Callable[..., Any] = scope["function"]
    function.__qualname__ = name
    return function


def _repr(self: Any) -> str:
    shown = []
    for field in fields_of(type(self)):
        value = getattr(self, field.name)
        shown.append(f"{field.name}={'***' if field.secret and value else repr(value)}")
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _eq(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def always(*, absent: Any = dataclasses.MISSING, nullable_since: int = 0) -> Any:
    """Declare a field of every version that has a default, or is nullable from some version on."""
    return _field(0, LAST_VERSION, absent, nullable_since, None)


def since(version: int, *, absent: Any, until: int = LAST_VERSION, nullable_since: int = 0) -> Any:
    """Declare a field added in `version`; older ones mean `absent`. A class (`list`) creates a new value each time."""
    return _field(version, until, absent, nullable_since, None)


def until(version: int, *, absent: Any, nullable_since: int = 0) -> Any:
    """Declare a field whose last version is `version`; newer ones mean `absent`."""
    return _field(0, version, absent, nullable_since, None)


def tagged(tag: int, *, since: int, absent: Any = None) -> Any:
    """Declare a tagged field of a flexible version: left out if it equals `absent`, skipped by readers without it."""
    return _field(since, LAST_VERSION, absent, 0, tag)


def _field(first: int, last: int, absent: Any, nullable_since: int, tag: int | None) -> Any:
    metadata = {"wire": (first, last, nullable_since, tag)}
    if absent is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    if isinstance(absent, type):
        return dataclasses.field(default_factory=typing.cast(Callable[[], Any], absent), metadata=metadata)
    return dataclasses.field(default=absent, metadata=metadata)


@value
class WireField:
    """One field of a message, for both codecs. `kind` and `struct` exclude each other."""

    name: str
    kind: Kind | None
    struct: type[Any] | None
    is_array: bool
    nullable: bool
    first: int
    last: int
    nullable_since: int
    tag: int | None
    default: Any
    """The value of an absent field, or a callable that creates it; MISSING if the field is never absent."""
    secret: bool = False
    """Whether the value must not be displayed."""

    def exists(self, version: int) -> bool:
        """Whether messages of this version carry the field at all."""
        return self.first <= version <= self.last

    def may_be_null(self, version: int) -> bool:
        """Whether null is a legal value of the field in this version."""
        return self.nullable and version >= self.nullable_since

    def absent_value(self) -> Any:
        """Return the value of the field in a version without it."""
        return self.default() if isinstance(self.default, type) else self.default


_fields: Final[dict[type[Any], tuple[WireField, ...]]] = {}


def fields_of(message: type[Any]) -> tuple[WireField, ...]:
    """Return the fields of a message or nested struct in wire order."""
    known = _fields.get(message)
    if known is None:
        scope = vars(sys.modules[message.__module__])
        known = tuple(_describe(field, _evaluate(field.type, scope)) for field in dataclasses.fields(message))
        _fields[message] = known
    return known


def _evaluate(hint: Any, scope: dict[str, Any]) -> Any:
    """Evaluate an annotation in text form, in a tenth of the time of `typing.get_type_hints`."""
    return eval(hint, scope) if isinstance(hint, str) else hint


def _describe(field: dataclasses.Field[Any], hint: Any) -> WireField:
    first, last, nullable_since, tag = field.metadata.get("wire", (0, LAST_VERSION, 0, None))
    nullable, hint = _without_none(hint)
    is_array = typing.get_origin(hint) is list
    if is_array:
        (hint,) = typing.get_args(hint)
    kind = next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Kind)), None)
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory
    return WireField(
        name=field.name,
        kind=kind,
        struct=None if kind is not None else hint,
        is_array=is_array,
        nullable=nullable,
        first=first,
        last=last,
        nullable_since=nullable_since,
        tag=tag,
        default=default,
        secret=SECRET in getattr(hint, "__metadata__", ()),
    )


def _without_none(hint: Any) -> tuple[bool, Any]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [part for part in typing.get_args(hint) if part is not type(None)]
        assert len(rest) == 1, f"a wire type is one type, nullable or not: {hint}"
        return True, rest[0]
    return False, hint
