"""Generates the Python that decodes one message class at one version.

The result resembles hand-written code: one `struct` call per run of fixed-width fields, straight into the slots of a
fresh object; a length or count fused into the run before it; loops only where the message repeats. It never reads a
record: those become slices of the frame.

Invariant: nothing is allocated or repeated for a count before the remaining bytes could hold that many elements, and
every length is checked before use (a slice past the end would be short without an error). The smallest elements have
two bytes and become fifty times as large: so the caller limits the number of `entries`.

`buf` is bytes or a bytearray, `size` its length, `pos` the next byte, `entries` how many elements of arrays and tagged
fields the rest of the message may have. The caller of the code turns an IndexError, a struct.error or a
UnicodeDecodeError into a `DecodeError` with the path of the field (`compiler.explain`).
"""

from __future__ import annotations

import struct
from typing import Any, Final

from anabranch.protocol.emitter import Emitter, Place, least_bytes_of_kind, minimum_size, singular
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.varint import decode_uvarint
from anabranch.protocol.wire import ZERO_UUID, Kind, WireField, fields_of

LINE_WIDTH: Final = 110
TEXT_BYTES_MAX: Final = 32767
ENDLESS: Final = 1 << 62
"""No limit on entries but the bytes: nodes and clients accept that in responses to their own requests."""


def write_decoder(message: type[Any], version: int, flexible: bool) -> Emitter:
    """Generate `decode(buf, pos, entries) -> (message, pos)`."""
    emitter = Emitter(namespace=dict(_HELPERS))
    _Decoder(emitter, version, flexible).function(message)
    return emitter


class _Decoder:
    """Holds the pending run of fixed-width values."""

    def __init__(self, emitter: Emitter, version: int, flexible: bool) -> None:
        self.out = emitter
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str, str]] = []

    def function(self, message: type[Any]) -> None:
        with self.out.block("def decode(buf, pos, entries=ENDLESS):"):
            self.out.line("size = len(buf)")
            if has_records(message, self.version):
                self.out.line("view = memoryview(buf)")
            self.structure(message, self.out.fresh("message"))
            self.flush()
            self.out.line("return message, pos")

    def structure(self, cls: type[Any], target: str) -> None:
        """Write the fields of a struct into a new object that bypasses `__init__`: half the time of a keyword call."""
        self.out.line(f"{target} = new({self.out.bind(cls.__name__, cls)})")
        self.fields(cls, target)

    def fields(self, cls: type[Any], target: str) -> None:
        fields = fields_of(cls)
        tagged = sorted((f for f in fields if f.tag is not None and f.exists(self.version)), key=lambda f: f.tag or 0)
        for field in fields:
            if not field.exists(self.version) or field.tag is not None:
                self.set_absent(field, f"{target}.{field.name}")
        for field in fields:
            if field.exists(self.version) and field.tag is None:
                with self.out.inside(field.name):
                    self.field(field, f"{target}.{field.name}")
        if self.flexible:
            self.tags(tagged, target)

    def set_absent(self, field: WireField, target: str) -> None:
        """Set a field that is not in the bytes to its default; mutable values are created anew."""
        default = field.default
        if default is list:
            self.out.line(f"{target} = []")
        elif isinstance(default, type):
            name = self.out.fresh(field.name)
            self.out.line(f"{target} = {name} = new({self.out.bind(default.__name__, default)})")
            for part in fields_of(default):
                self.set_absent(part, f"{name}.{part.name}")
        elif isinstance(default, int | float | str | bytes | None) and len(repr(default)) < 24:
            self.out.line(f"{target} = {default!r}")
        else:
            name = "ZERO_UUID" if default == ZERO_UUID else f"DEFAULT_{field.name.upper()}"
            self.out.line(f"{target} = {self.out.bind(name, default)}")

    def field(self, field: WireField, target: str) -> None:
        nullable = field.may_be_null(self.version)
        if field.is_array:
            self.array(field, target, nullable)
        elif field.struct is not None:
            if nullable:
                self.nullable_struct(field, target)
            else:
                self.write_nested(field, target)
        else:
            assert field.kind is not None
            self.primitive(field.kind, target, nullable)

    def write_nested(self, field: WireField, target: str) -> None:
        """Write a struct within its parent."""
        assert field.struct is not None
        name = self.out.fresh(field.name)
        self.out.line(f"{target} = {name} = new({self.out.bind(field.struct.__name__, field.struct)})")
        self.fields(field.struct, name)

    def nullable_struct(self, field: WireField, target: str) -> None:
        """Write a struct after its presence byte: negative is null (KIP-893)."""
        present = self.out.fresh(f"{field.name}_present")
        self.add_fixed(present, "b")
        self.flush()
        with self.out.block(f"if {present} < 0:"):
            self.out.line(f"{target} = None")
        with self.out.block("else:"):
            self.write_nested(field, target)
            self.flush()

    def primitive(self, kind: Kind, target: str, nullable: bool) -> None:
        if kind.fixed:
            self.add_fixed(target, kind.value)
        else:
            self.stretch(kind, target, nullable)

    # -- runs of fixed-width values -------------------------------------------------------------------------------

    def add_fixed(self, target: str, form: str) -> None:
        self.run.append((target, form, self.out.path))

    def flush(self) -> None:
        """Write the pending run as one read."""
        run, self.run = self.run, []
        if not run:
            return
        widths = tuple((path, struct.calcsize(">" + form)) for _, form, path in run)
        place = Place(run[0][2], widths)
        formats = "".join(form for _, form, _ in run)
        if formats in ("B", "?"):
            self.out.line(f"{run[0][0]} = buf[pos]" + (" != 0" if formats == "?" else "") + "; pos += 1", place)
            return
        step = f"pos += {sum(width for _, width in widths)}"
        targets = ", ".join(target for target, _, _ in run) + ("," if len(run) == 1 else "")
        read = f"{self.out.unpacker(formats)}(buf, pos)"
        if len(targets) + len(read) < LINE_WIDTH:
            self.out.line(f"{targets} = {read}; {step}", place)
            return
        self.out.line("(", place)
        for target, _, _ in run:
            self.out.line(f"    {target},", place)
        self.out.line(f") = {read}; {step}", place)

    # -- values that carry their length -----------------------------------------------------------------------------

    def prefix(self, name: str, form: str, long: str) -> str:
        """Read a length or count, fused with the run before it. A compact one is still one too high."""
        self.add_fixed(name, "B" if self.flexible else form)
        self.flush()
        if self.flexible:
            self.out.line(f"if {name} > 127: {name}, pos = {long}(buf, pos - 1)")
        return f"{name} - 1" if self.flexible else name

    def stretch(self, kind: Kind, target: str, nullable: bool) -> None:
        """Write the read of a text, bytes or records."""
        text = kind is Kind.TEXT
        length = self.prefix("length", "h" if text else "i", "long_text" if text else "long_uvarint")
        if nullable:
            with self.out.block("if length == 0:" if self.flexible else "if length < 0:"):
                self.out.line(f"{target} = None")
            with self.out.block("else:"):
                self.slice(kind, target, length)
        else:
            self.slice(kind, target, length)

    def slice(self, kind: Kind, target: str, length: str) -> None:
        self.out.line(f"end = pos + {length}")
        self.out.line("if not pos <= end <= size: raise bad_length(end - pos, size - pos)")
        value = {
            Kind.TEXT: "buf[pos:end].decode()",
            Kind.BYTES: "bytes(buf[pos:end])",
            Kind.RECORDS: "view[pos:end]",
        }[kind]
        self.out.line(f"{target} = {value}; pos = end")

    # -- arrays -----------------------------------------------------------------------------------------------------

    def array(self, field: WireField, target: str, nullable: bool) -> None:
        count = self.out.fresh(f"{field.name}_count")
        self.prefix(count, "i", "long_uvarint")
        if self.flexible:
            self.out.line(f"{count} -= 1")
        if nullable:
            with self.out.block(f"if {count} < 0:"):
                self.out.line(f"{target} = None")
            with self.out.block("else:"):
                self.elements(field, target, count)
        else:
            self.elements(field, target, count)

    def elements(self, field: WireField, target: str, count: str) -> None:
        if field.struct is not None:
            least = minimum_size(fields_of(field.struct), self.version, self.flexible, fields_of)
        else:
            least = least_bytes_of_kind(field, self.flexible)
        assert least > 0, f"an element of {field.name} may take no bytes: its count could not be bounded"
        needed = f"{count} * {least}" if least > 1 else count
        self.out.line(f"if not 0 <= {needed} <= size - pos: raise bad_count({count}, size - pos)")
        self.out.line(f"entries -= {count}")
        self.out.line("if entries < 0: raise too_many(entries)")
        if field.kind is not None and field.kind.fixed and field.kind is not Kind.UUID:
            self.many(field.kind.value, target, count, least)
            return
        elements, at = self.out.fresh(field.name), self.out.fresh(f"{field.name}_at")
        self.out.line(f"{target} = {elements} = []")
        with self.out.block(f"for {at} in range({count}):"), self.out.inside(f"[{{{at}}}]"):
            element = self.out.fresh(singular(field.name))
            if field.struct is not None:
                self.structure(field.struct, element)
                self.flush()
            else:
                assert field.kind is not None
                self.primitive(field.kind, element, nullable=False)
                self.flush()
            self.out.line(f"{elements}.append({element})")

    def many(self, form: str, target: str, count: str, width: int) -> None:
        """Write the read of an array of numbers: one read, through a prepared struct while they are few."""
        few = self.out.bind("few_" + form.replace("?", "t"), few_readers(form))
        read = f"{few}[{count}](buf, pos) if {count} < {FEW} else unpack_from(f'>{{{count}}}{form}', buf, pos)"
        self.out.line(f"{target} = list({read}); pos += {count}" + (f" * {width}" if width > 1 else ""))

    # -- tagged fields ----------------------------------------------------------------------------------------------

    def tags(self, tagged: list[WireField], target: str) -> None:
        tags = self.out.fresh("tags")
        self.add_fixed(tags, "B")
        self.flush()
        with self.out.block(f"if {tags}:"):
            if not tagged:
                self.out.line("pos, entries = skip_tags(buf, pos - 1, entries)")
                return
            self.out.line(f"if {tags} > 127: {tags}, pos = long_uvarint(buf, pos - 1)")
            self.out.line(f"entries -= {tags}")
            self.out.line("if entries < 0: raise too_many(entries)")
            tag, end = self.out.fresh("tag"), self.out.fresh("tag_end")
            self.out.line(f"{tag} = -1")
            with self.out.block(f"for _ in range({tags}):"):
                self.out.line(f"{tag}, pos, {end} = next_tag(buf, pos, {tag})")
                word = "if"
                for field in tagged:
                    with self.out.block(f"{word} {tag} == {field.tag}:"), self.out.inside(field.name):
                        self.field(field, f"{target}.{field.name}")
                        self.flush()
                        self.out.line(f"if pos != {end}: raise bad_tag_size({tag}, pos - {end})")
                    word = "elif"
                with self.out.block("else:"):
                    self.out.line(f"pos = {end}")


_carriers: Final[dict[tuple[type[Any], int], bool]] = {}


def has_records(cls: type[Any], version: int) -> bool:
    """Whether a message of this version can carry record batches."""
    known = _carriers.get((cls, version))
    if known is None:
        known = _carriers[cls, version] = any(
            field.exists(version)
            and (field.kind is Kind.RECORDS or (field.struct is not None and has_records(field.struct, version)))
            for field in fields_of(cls)
        )
    return known


# -- helpers that generated code calls off the fast path --


FEW: Final = 9
_FEW_READERS: Final[dict[str, tuple[Any, ...]]] = {}


def few_readers(form: str) -> tuple[Any, ...]:
    """Return `unpack_from` for zero to eight values of a format: replica lists and the like."""
    if form not in _FEW_READERS:
        _FEW_READERS[form] = tuple(struct.Struct(f">{count}{form}").unpack_from for count in range(FEW))
    return _FEW_READERS[form]


def _long_text(buf: bytes, pos: int) -> tuple[int, int]:
    length, after = decode_uvarint(buf, pos)
    if length > TEXT_BYTES_MAX + 1:
        raise DecodeError(f"text of {length - 1} bytes, more than {TEXT_BYTES_MAX}")
    return length, after


def _bad_length(length: int, left: int) -> DecodeError:
    if length < 0:
        return DecodeError("null in a field that is not nullable")
    return DecodeError(f"length {length} with {left} bytes left")


def _bad_count(count: int, left: int) -> DecodeError:
    if count < 0:
        return DecodeError("null in a field that is not nullable")
    return DecodeError(f"{count} elements cannot fit in the {left} bytes left")


def _too_many(entries: int) -> DecodeError:
    return DecodeError(f"{-entries} entries above the limit of a request (max.request.partition.size.limit)")


def _bad_tag_size(tag: int, over: int) -> DecodeError:
    return DecodeError(f"tag {tag} {'runs past' if over > 0 else 'leaves bytes before'} its declared end")


def next_tag(buf: bytes, pos: int, previous: int) -> tuple[int, int, int]:
    """Read the head of one tagged field: return its tag, the start of its value and its required end.

    Nearly all tags have one or two bytes, and nearly all lengths one.
    """
    tag = buf[pos]
    if tag < 128:
        pos += 1
    elif (second := buf[pos + 1]) < 128:
        tag, pos = tag & 127 | second << 7, pos + 2
    else:
        tag, pos = decode_uvarint(buf, pos)
    if tag <= previous:
        raise DecodeError(f"tag {tag} after tag {previous}")
    length = buf[pos]
    if length < 128:
        pos += 1
    else:
        length, pos = decode_uvarint(buf, pos)
    end = pos + length
    if end > len(buf):
        raise DecodeError(f"tag {tag} of {length} bytes with {len(buf) - pos} bytes left")
    return tag, pos, end


def skip_tags(buf: bytes, pos: int, entries: int = ENDLESS) -> tuple[int, int]:
    """Skip a whole tag buffer: return its end, and the remaining entries."""
    count, pos = decode_uvarint(buf, pos)
    entries -= count
    if entries < 0:
        raise _too_many(entries)
    tag = -1
    for _ in range(count):
        tag, _, pos = next_tag(buf, pos, tag)
    return pos, entries


_HELPERS: Final[dict[str, Any]] = {
    "bad_count": _bad_count,
    "bad_length": _bad_length,
    "bad_tag_size": _bad_tag_size,
    "buf": None,
    "end": None,
    "entries": None,
    "ENDLESS": ENDLESS,
    "length": None,
    "long_text": _long_text,
    "long_uvarint": decode_uvarint,
    "new": object.__new__,
    "next_tag": next_tag,
    "pos": None,
    "size": None,
    "skip_tags": skip_tags,
    "too_many": _too_many,
    "unpack_from": struct.unpack_from,
    "view": None,
}
"""Names of the generated module; those of `decode`'s own locals are listed so that no field uses them."""
