"""Generates the Python that encodes one message class at one version.

Small pieces are collected and joined once. Record batches are not copied: for messages that can carry them, `encode`
returns a list of chunks, in which each larger batch is its own chunk; for all others it returns bytes.

A value that the declaration does not allow (None without a nullable field, an integer that does not fit) is a bug of
the caller and raises Python's own exception; the traceback shows the generated line, which names the field.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from anabranch.protocol.decoder_source import FEW, LINE_WIDTH, has_records
from anabranch.protocol.emitter import Emitter, singular
from anabranch.protocol.varint import SMALL_UVARINTS, encode_uvarint
from anabranch.protocol.wire import EncodedElements, Kind, WireField, fields_of

COPIED_RECORDS_BYTES: Final = 2048
"""Up to this size a copy is cheaper than a chunk of its own."""
NO_STRUCT: Final = b"\xff"


def write_encoder(message: type[Any], version: int, flexible: bool) -> Emitter:
    """Generate `encode(message) -> bytes`, or `-> list[Buffer]` if it can carry records."""
    emitter = Emitter(namespace=dict(_HELPERS))
    _Encoder(emitter, version, flexible).function(message)
    return emitter


class _Encoder:
    """Holds the pending run of fixed-width values, and the list of pieces."""

    def __init__(self, emitter: Emitter, version: int, flexible: bool) -> None:
        self.out = emitter
        self.version = version
        self.flexible = flexible
        self.parts, self.add = "parts", "add"
        self.run: list[tuple[str, str]] = []

    def function(self, message: type[Any]) -> None:
        chunked = has_records(message, self.version)
        with self.out.block("def encode(message):"):
            if chunked:
                self.out.line("chunks = []")
            self.out.line("parts = []; add = parts.append")
            self.fields(message, "message")
            self.flush()
            if chunked:
                self.out.line("if parts: chunks.append(join(parts))")
            self.out.line("return chunks" if chunked else "return join(parts)")

    def fields(self, cls: type[Any], source: str) -> None:
        fields = [field for field in fields_of(cls) if field.exists(self.version)]
        for field in fields:
            if field.tag is None:
                with self.out.inside(field.name):
                    self.field(field, f"{source}.{field.name}")
        if self.flexible:
            tagged = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)
            self.tags(tagged, source)

    def field(self, field: WireField, source: str) -> None:
        nullable = field.may_be_null(self.version)
        if field.is_array:
            self.array(field, source, nullable)
        elif field.struct is not None:
            name = self.out.fresh(field.name)
            self.out.line(f"{name} = {source}")
            if nullable:
                self.nullable_struct(field.struct, name)
            else:
                self.fields(field.struct, name)
        else:
            assert field.kind is not None
            self.primitive(field.kind, source, nullable)

    def nullable_struct(self, cls: type[Any], source: str) -> None:
        """Write a struct after its presence byte: -1 or 1 (KIP-893)."""
        self.flush()
        with self.out.block(f"if {source} is None:"):
            self.out.line(f"{self.add}({NO_STRUCT!r})")
        with self.out.block("else:"):
            self.run.append(("1", "b"))
            self.fields(cls, source)
            self.flush()

    def primitive(self, kind: Kind, source: str, nullable: bool) -> None:
        if kind.fixed:
            self.run.append((source, kind.value))
            return
        value = "text" if kind is Kind.TEXT else "data"
        if not nullable:
            self.out.line(f"{value} = {source}" + (".encode()" if kind is Kind.TEXT else ""))
            self.stretch(kind, value)
            return
        self.out.line(f"{value} = {source}")
        self.null_or(value, "h" if kind is Kind.TEXT else "i", lambda: self.nullable_stretch(kind, value))

    def nullable_stretch(self, kind: Kind, value: str) -> None:
        if kind is Kind.TEXT:
            self.out.line(f"{value} = {value}.encode()")
        self.stretch(kind, value)

    # -- runs of fixed-width values -------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write the pending run as one pack."""
        run, self.run = self.run, []
        if not run:
            return
        formats = "".join(form for _, form in run)
        values = [value for value, form in run if form != "x"]
        if not values:
            self.out.line(f"{self.add}({bytes(len(run))!r})")
            return
        line = f"{self.add}({self.out.packer(formats)}({', '.join(values)}))"
        if len(line) < LINE_WIDTH:
            self.out.line(line)
            return
        self.out.line(f"{self.add}({self.out.packer(formats)}(")
        for value in values:
            self.out.line(f"    {value},")
        self.out.line("))")

    # -- values that carry their length -----------------------------------------------------------------------------

    def prefix(self, length: str, form: str) -> None:
        """Write a length or count; a classic one joins the run before it."""
        if not self.flexible:
            self.run.append((length, form))
            self.flush()
            return
        self.flush()
        self.out.line(f"count = {length} + 1")
        self.out.line(f"{self.add}(small[count] if count < 128 else uvarint(count))")

    def null_or(self, value: str, form: str, present: Any) -> None:
        self.flush()
        null = b"\0" if self.flexible else struct.pack(">" + form, -1)
        with self.out.block(f"if {value} is None:"):
            self.out.line(f"{self.add}({null!r})")
        with self.out.block("else:"):
            present()
            self.flush()

    def stretch(self, kind: Kind, value: str) -> None:
        self.prefix(f"len({value})", "h" if kind is Kind.TEXT else "i")
        if kind is not Kind.RECORDS:
            self.out.line(f"{self.add}({value})")
            return
        assert self.parts == "parts", "records cannot travel in a tagged field"
        with self.out.block(f"if len({value}) <= {COPIED_RECORDS_BYTES}:"):
            self.out.line(f"add({value})")
        with self.out.block("else:"):
            self.out.line(f"chunks.append(join(parts)); parts.clear(); chunks.append({value})")

    # -- arrays -----------------------------------------------------------------------------------------------------

    def array(self, field: WireField, source: str, nullable: bool) -> None:
        values = self.out.fresh(field.name)
        self.out.line(f"{values} = {source}")
        if nullable:
            self.null_or(values, "i", lambda: self.elements(field, values))
        else:
            self.elements(field, values)

    def elements(self, field: WireField, values: str) -> None:
        self.prefix(f"len({values})", "i")
        if field.kind is Kind.UUID:
            self.out.line(f"{self.parts} += {values}")
            return
        if field.kind is not None and field.kind.fixed:
            form = field.kind.value
            few = self.out.bind("few_" + form.replace("?", "t"), few_writers(form))
            many = f"pack(f'>{{len({values})}}{form}', *{values})"
            self.out.line(f"{self.add}({few}[len({values})](*{values}) if len({values}) < {FEW} else {many})")
            return
        if hasattr(field.struct, "flexible_from"):
            version = self.out.bind("VERSION", self.version)
            with self.out.block(f"if {values}.__class__ is EncodedElements and {values}.version == {version}:"):
                self.out.line(f"{self.add}({values}.encoded)")
            with self.out.block("else:"):
                self.each(field, values)
        else:
            self.each(field, values)

    def each(self, field: WireField, values: str) -> None:
        """Write a loop over the elements of an array."""
        element = self.out.fresh(singular(field.name))
        with self.out.block(f"for {element} in {values}:"):
            if field.struct is not None:
                self.fields(field.struct, element)
            else:
                assert field.kind is not None
                self.primitive(field.kind, element, nullable=False)
            self.flush()

    # -- tagged fields ----------------------------------------------------------------------------------------------

    def tags(self, tagged: list[WireField], source: str) -> None:
        if not tagged:
            self.run.append(("", "x"))
            return
        self.flush()
        tags = self.out.fresh("tags")
        self.out.line(f"{tags} = []")
        for field in tagged:
            with self.out.inside(field.name), self.out.block(self.presence(field, f"{source}.{field.name}")):
                self.tag(field, f"{source}.{field.name}", tags)
        self.out.line(f"{self.add}(small[len({tags})])")
        self.out.line(f"{self.parts} += {tags}")

    def presence(self, field: WireField, value: str) -> str:
        """Return the condition under which a tagged field is sent: it differs from its default."""
        default = field.default
        if default is None:
            return f"if {value} is not None:"
        if default is list:
            return f"if {value}:"
        if field.struct is not None and all(part.kind is not None for part in fields_of(field.struct)):
            name = self.out.fresh(field.name)
            self.out.line(f"{name} = {value}")
            parts = (f"{name}.{part.name} != {part.absent_value()!r}" for part in fields_of(field.struct))
            return f"if {' or '.join(parts)}:"
        if isinstance(default, type):
            return f"if {value} != {self.out.bind('DEFAULT_' + field.name.upper(), default())}:"
        if isinstance(default, bool):
            return f"if not {value}:" if default else f"if {value}:"
        return f"if {value} != {default!r}:"

    def tag(self, field: WireField, value: str, tags: str) -> None:
        assert field.tag is not None
        if field.kind is not None and field.kind.fixed and not field.is_array:
            head = encode_uvarint(field.tag) + encode_uvarint(struct.calcsize(">" + field.kind.value))
            self.out.line(f"{tags}.append({head!r} + {self.out.packer(field.kind.value)}({value}))")
            return
        outer = self.parts, self.add
        payload = self.out.fresh("payload")
        self.parts, self.add = payload, f"{payload}.append"
        self.out.line(f"{payload} = []")
        self.field(field, value)
        self.flush()
        self.parts, self.add = outer
        self.out.line(f"{payload} = join({payload})")
        self.out.line(f"{tags}.append({encode_uvarint(field.tag)!r} + uvarint(len({payload})) + {payload})")


_FEW_WRITERS: Final[dict[str, tuple[Any, ...]]] = {}


def few_writers(form: str) -> tuple[Any, ...]:
    """Return `pack` for zero to eight values of a format."""
    if form not in _FEW_WRITERS:
        _FEW_WRITERS[form] = tuple(struct.Struct(f">{count}{form}").pack for count in range(FEW))
    return _FEW_WRITERS[form]


_HELPERS: Final[dict[str, Any]] = {
    "add": None,
    "chunks": None,
    "count": None,
    "data": None,
    "EncodedElements": EncodedElements,
    "join": b"".join,
    "message": None,
    "pack": struct.pack,
    "parts": None,
    "small": SMALL_UVARINTS,
    "text": None,
    "uvarint": encode_uvarint,
}
