"""Finds what requests name, and where responses have error codes, from the wire declarations of every API.

Requests name things in many forms: `topics[*].partitions[*].partition_index`, `topic_data[*].name`, a list of group
ids. `rows_of` converts them to one form: a row per named thing, with all its identifiers ({topic: "orders",
partition: 3}). A response names the same things, and has error codes for some of them: its `Level`s. A field's name
determines what it identifies, because Kafka's messages name fields consistently.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from anabranch.protocol.values import value
from anabranch.protocol.wire import ZERO_UUID, Kind, WireField, fields_of

if TYPE_CHECKING:
    from anabranch.protocol.registry import Api

Row = dict[str, Any]
"""The identifiers of one named object in a request: kind -> value."""

TOPIC: Final = "topic"
TOPIC_ID: Final = "topic_id"
PARTITION: Final = "partition"
GROUP: Final = "group"
TRANSACTIONAL_ID: Final = "transactional_id"
PRODUCER_ID: Final = "producer_id"
KEY: Final = "key"
RESOURCE: Final = "resource_name"
RESOURCE_TYPE: Final = "resource_type"
NAMEABLE: Final = (TOPIC, PARTITION, GROUP, TRANSACTIONAL_ID, PRODUCER_ID)
"""The kinds that a rule can name."""

KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("topic", "topic_name", "topic_names"), TOPIC),
    "topic_id": TOPIC_ID,
    **dict.fromkeys(
        ("partition", "partitions", "partition_index", "partition_indexes", "partition_id", "index"), PARTITION
    ),
    **dict.fromkeys(("group_id", "group_ids", "groups", "groups_names"), GROUP),
    **dict.fromkeys(("transactional_id", "transactional_ids", "v3_and_below_transactional_id"), TRANSACTIONAL_ID),
    **dict.fromkeys(("producer_id", "v3_and_below_producer_id"), PRODUCER_ID),
    "coordinator_keys": KEY,
    **{one: one for one in (RESOURCE, RESOURCE_TYPE, "member_id", "group_instance_id", "feature", "user")},
}
"""Field name -> the kind that it identifies."""
NOT_ASKED: Final = frozenset({"forgotten_topics_data", "live_leaders", "live_brokers", "assignments"})
"""Lists in requests that name nothing requested."""
REPEATED: Final = ("entity",)
"""Fields that a response repeats for an element without a name."""
ERRORS: Final = ("error_code", "partition_error_code")
GROUP_KEY: Final = 0
TOPIC_RESOURCE: Final = 2
RECORDS: Final = "records"
PRODUCER_ID_AT: Final = 43
MAGIC_AT: Final = 16
TOP: Final = "top"
ROW: Final = "row"


def kind_of(struct: type[Any], field: WireField) -> str | None:
    """The kind that a field identifies, or None."""
    if field.struct is not None:
        return None
    if field.name == "name":
        if "Topic" in struct.__name__ and "Config" not in struct.__name__:
            return TOPIC
        return "user" if "Scram" in struct.__name__ or "UserName" in struct.__name__ else None
    if field.name == KEY:
        return KEY if "Coordinator" in struct.__name__ else None
    return KINDS.get(field.name)


@value
class Shape:
    """The fields of one message or struct that identify something, and the lists that lead to such fields."""

    scalars: tuple[tuple[WireField, str], ...]
    lists: tuple[tuple[WireField, str], ...]
    nested: tuple[WireField, ...]
    records: str
    """The field with record batches, if there is one."""


_shapes: Final[dict[type[Any], Shape]] = {}


def shape_of(struct: type[Any]) -> Shape:
    """See Shape."""
    known = _shapes.get(struct)
    if known is None:
        fields = [field for field in fields_of(struct) if field.name not in NOT_ASKED]
        named = [(field, kind) for field in fields if (kind := kind_of(struct, field)) is not None]
        known = _shapes[struct] = Shape(
            scalars=tuple((field, kind) for field, kind in named if not field.is_array),
            lists=tuple((field, kind) for field, kind in named if field.is_array),
            nested=tuple(one for one in fields if one.is_array and one.struct is not None and identifies(one.struct)),
            records=next((field.name for field in fields if field.kind is Kind.RECORDS), ""),
        )
    return known


def identifies(struct: type[Any]) -> bool:
    """Whether a struct, or a nested one, identifies anything."""
    shape = shape_of(struct)
    return bool(shape.scalars or shape.lists or shape.nested)


def kinds_of(struct: type[Any], version: int) -> frozenset[str]:
    """All kinds that a message of this version can identify."""
    shape = shape_of(struct)
    found = {kind for field, kind in (*shape.scalars, *shape.lists) if field.exists(version)}
    for field in shape.nested:
        if field.exists(version) and field.struct is not None:
            found |= kinds_of(field.struct, version)
    if KEY in found:
        found |= {GROUP, TRANSACTIONAL_ID}
    if RESOURCE in found:
        found.add(TOPIC)
    if TOPIC_ID in found:
        found.add(TOPIC)
    if shape.records:
        found.add(PRODUCER_ID)
    return frozenset(found)


_by_id: Final[dict[tuple[type[Any], int], bool]] = {}


def names_topics_by_id(struct: type[Any], version: int) -> bool:
    """Whether a message of this version has topic ids without the names beside them."""
    known = _by_id.get((struct, version))
    if known is None:
        shape = shape_of(struct)
        kinds = {kind for field, kind in shape.scalars if field.exists(version)}
        nested = [one.struct for one in shape.nested if one.exists(version) and one.struct is not None]
        known = (TOPIC_ID in kinds and TOPIC not in kinds) or any(names_topics_by_id(one, version) for one in nested)
        _by_id[struct, version] = known
    return known


class Names:
    """Resolves topic ids to names, and ambiguous keys to kinds."""

    def __init__(self, topic_name: Callable[[bytes], str | None], key_type: int = GROUP_KEY) -> None:
        self._topic_name = topic_name
        self._key_kind = GROUP if key_type == GROUP_KEY else TRANSACTIONAL_ID

    def identity(self, struct: Any, shape: Shape, version: int, base: Row) -> Row:
        """The row of an element: its parent's row, and its own identifying fields."""
        if not shape.scalars and not shape.records:
            return base
        row = dict(base)
        for field, kind in shape.scalars:
            if field.exists(version):
                row[kind] = getattr(struct, field.name)
        if shape.records:
            row[PRODUCER_ID] = producer_id_of(getattr(struct, shape.records))
        return self.spelled_out(row)

    def spelled_out(self, row: Row) -> Row:
        """The row with ids resolved to names."""
        if TOPIC_ID in row and not row.get(TOPIC):
            name = None if row[TOPIC_ID] == ZERO_UUID else self._topic_name(row[TOPIC_ID])
            if name is not None:
                row[TOPIC] = name
        if KEY in row:
            row[self._key_kind] = row[KEY]
        if row.get(RESOURCE_TYPE) == TOPIC_RESOURCE and RESOURCE in row:
            row[TOPIC] = row[RESOURCE]
        return row


def producer_id_of(records: Any) -> int | None:
    """The producer id of the first batch; None for message sets, which have no producer ids."""
    if records is None or len(records) < PRODUCER_ID_AT + 8 or records[MAGIC_AT] != 2:
        return None
    return int.from_bytes(records[PRODUCER_ID_AT : PRODUCER_ID_AT + 8], "big", signed=True)


Way = tuple[tuple[str, ...], str, bool]
"""The lists that lead to a field, the field, and whether the field is a list."""
Reader = Callable[[Any], set[Any]]
_readers: Final[dict[tuple[type[Any], int], Mapping[str, Reader]]] = {}


def values_of(message: Any, version: int, kind: str) -> set[Any] | None:
    """All values of one kind in a request, faster than by rows; None if that takes rows."""
    key = (type(message), version)
    readers = _readers.get(key)
    if readers is None:
        readers = _readers[key] = dict(_written_fields(type(message), version))
    reader = readers.get(kind)
    return None if reader is None else reader(message) or None


def _written_fields(struct: type[Any], version: int) -> Iterator[tuple[str, Reader]]:
    found: dict[str, list[Way]] = {}
    _find_ways(struct, version, (), found)
    if KEY in found or RESOURCE in found:
        return  # their kind depends on another field
    for kind, ways in found.items():
        sets = " | ".join(_source(kind, *way) for way in ways)
        yield kind, eval(f"lambda message: {sets}", {"producer_id_of": producer_id_of})


def _source(kind: str, lists: tuple[str, ...], name: str, is_list: bool) -> str:
    """A comprehension over the values at the end of one path; it takes a third of the time of walking the path."""
    loops, struct = "", "message"
    for depth, step in enumerate(lists):
        loops += f" for s{depth} in {struct}.{step} or ()"
        struct = f"s{depth}"
    value = f"{struct}.{name}"
    if is_list:
        loops += f" for one in {value} or ()"
        value = "one"
    elif kind == PRODUCER_ID and name == RECORDS:
        value = f"producer_id_of({value})"
    return f"{{{value}{loops}}}"


def _find_ways(struct: type[Any], version: int, lists: tuple[str, ...], found: dict[str, list[Way]]) -> None:
    shape = shape_of(struct)
    for field, kind in (*shape.scalars, *shape.lists):
        if field.exists(version):
            found.setdefault(kind, []).append((lists, field.name, field.is_array))
    if shape.records:
        found.setdefault(PRODUCER_ID, []).append((lists, shape.records, False))
    for field in shape.nested:
        if field.exists(version) and field.struct is not None:
            _find_ways(field.struct, version, (*lists, field.name), found)


def rows_of(names: Names, message: Any, version: int) -> list[Row]:
    """The rows of a request; one empty row if it names nothing."""
    found = list(_rows(names, message, version, {}))
    if len(found) == 1 and not found[0]:
        unnamed = first_list(type(message), version)
        if unnamed is not None:
            return [_unnamed_row(one) for one in getattr(message, unnamed.name) or ()] or found
    return found


def _unnamed_row(element: Any) -> Row:
    return {name: getattr(element, name) for name in REPEATED if hasattr(element, name)}


def first_list(request: type[Any], version: int) -> WireField | None:
    """The list in a request whose elements have no names: responses keep their order."""
    return next((one for one in fields_of(request) if one.is_array and one.struct and one.exists(version)), None)


def _rows(names: Names, struct: Any, version: int, base: Row) -> Iterator[Row]:
    shape = shape_of(type(struct))
    row = names.identity(struct, shape, version, base)
    leaf = True
    for field, kind in shape.lists:
        if field.exists(version) and (listed := getattr(struct, field.name)):
            leaf = False
            for one in listed:
                yield names.spelled_out({**row, kind: one})
    for field in shape.nested:
        if field.exists(version) and (listed := getattr(struct, field.name)):
            leaf = False
            for one in listed:
                yield from _rows(names, one, version, row)
    if leaf:
        yield row


def without(
    names: Names, struct: Any, version: int, dropped: Callable[[Row], bool], copy: Callable[[Any], Any], base: Row
) -> Any | None:
    """A copy of a request without the `dropped` rows; None if nothing is left."""
    shape = shape_of(type(struct))
    row = names.identity(struct, shape, version, base)
    made, leaf, left = copy(struct), True, False
    for field, kind in shape.lists:
        if field.exists(version) and (listed := getattr(struct, field.name)):
            leaf = False
            kept = [one for one in listed if not dropped(names.spelled_out({**row, kind: one}))]
            left = left or bool(kept)
            setattr(made, field.name, kept)
    for field in shape.nested:
        if field.exists(version) and (listed := getattr(struct, field.name)):
            leaf = False
            parts = [without(names, one, version, dropped, copy, row) for one in listed]
            kept = [part for part in parts if part is not None]
            left = left or bool(kept)
            setattr(made, field.name, kept)
    return made if left or (leaf and not dropped(row)) else None


@value
class Level:
    """A place for an error code in a response."""

    path: tuple[WireField, ...]
    """The lists that lead to it; empty for the whole response."""
    field: str
    kinds: frozenset[str]
    """The kinds that identify a row there."""

    @property
    def title(self) -> str:
        """The level's name in rules."""
        if not self.path:
            return TOP
        last = self.path[-1].struct
        assert last is not None
        own = {kind for _, kind in shape_of(last).scalars}
        return PARTITION if PARTITION in own else TOPIC if TOPIC in own or TOPIC_ID in own else ROW


def levels_of(api: Api, version: int) -> tuple[Level, ...]:
    """All places for error codes in responses of this version, the outermost first."""
    key = (api.response, version)
    known = _known_levels.get(key)
    if known is None:
        found = sorted(_levels(api.response, version, (), frozenset()), key=lambda one: len(one.path))
        known = _known_levels[key] = tuple(found)
    return known


_known_levels: Final[dict[tuple[type[Any], int], tuple[Level, ...]]] = {}


def _levels(struct: type[Any], version: int, path: tuple[WireField, ...], above: frozenset[str]) -> Iterator[Level]:
    own = above | {kind for field, kind in shape_of(struct).scalars if field.exists(version)} if path else above
    for field in fields_of(struct):
        if not field.exists(version):
            continue
        if field.name in ERRORS and field.kind is Kind.INT16:
            yield Level(path, field.name, own)
        elif field.is_array and field.struct is not None:
            yield from _levels(field.struct, version, (*path, field), own)


def derivable(level: Level, api: Api, version: int) -> bool:
    """Whether the request determines the response's rows at this level."""
    requested = kinds_of(api.request, version)
    if level.path and not level.kinds:
        listed = first_list(api.request, version)
        return len(level.path) == 1 and listed is not None and not listed.may_be_null(version)
    own = [{kind for field, kind in shape_of(one.struct).scalars} for one in level.path if one.struct is not None]
    return all(not kinds or kinds & requested for kinds in own)
