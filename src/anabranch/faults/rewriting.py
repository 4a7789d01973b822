"""Puts errors, throttle times and field values into responses, in the rows that a rule matches.

Responses may be shared: they are never changed, but copied along the path to a change. An error row looks like a
broker's: its identifying fields, the error, and empty values (-1, no records).

Pure.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.dispatch.dispatcher import empty_value
from anabranch.faults.request_fields import (
    PARTITION,
    REPEATED,
    ROW,
    TOP,
    TOPIC,
    Level,
    Names,
    Row,
    derivable,
    levels_of,
    shape_of,
)
from anabranch.protocol.answerable import ALLOWED
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.wire import Kind, WireField, fields_of

if TYPE_CHECKING:
    from anabranch.faults.rule import Rule
    from anabranch.protocol.registry import Api

WHOLE: Final = frozenset(
    {
        *(ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        *(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        *(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_REQUEST),
        *(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_GROUP_ID),
        *(ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNSUPPORTED_VERSION),
        *(ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSTABLE_OFFSET_COMMIT),
    }
)
"""Errors that concern the whole request: they go to the outermost level."""
NUMBERS: Final = frozenset({Kind.INT32, Kind.INT64})
THROTTLE: Final = "throttle_time_ms"
REASON: Final = "error_message"


def level_for(rule: Rule, api: Api, version: int) -> Level | None:
    """The level of the rule's error in responses of this version; None without one, or if the code is of later ones."""
    if version < ALLOWED.get(api.name, {}).get(ErrorCode[rule.error], 0):
        return None
    levels = levels_of(api, version)
    if rule.level:
        return next((one for one in levels if one.title == rule.level), None)
    if rule.partition:
        return next((one for one in levels if one.title == PARTITION), levels[0] if levels else None)
    known = [one for one in levels if derivable(one, api, version)] or levels
    if not known:
        return None
    if ErrorCode[rule.error] in WHOLE:
        return known[0]
    return next((one for title in (TOPIC, PARTITION, ROW, TOP) for one in known if one.title == title), None)


def empty_answer(api: Api) -> Any:
    """A response without content."""
    return api.response(**{field.name: empty_value(field) for field in fields_of(api.response)})


def with_errors(
    response: Any, version: int, level: Level, rows: Sequence[Row], code: int, reason: str | None = None
) -> Any:
    """The response with an error in each of the rows; missing rows are added."""
    made = copy.copy(response)
    if not level.path:
        setattr(made, level.field, code)
        return made
    placing = _Placing(version, level, code, reason)
    for row in rows:
        placing.place(made, row)
    return made


class _Placing:
    def __init__(self, version: int, level: Level, code: int, reason: str | None) -> None:
        self._version = version
        self._level = level
        self._code = code
        self._reason = reason
        self._known: dict[tuple[int, str, tuple[Any, ...]], int] = {}
        """(struct, its list, an element's identity) -> the element's index, for all copied lists."""
        self._copied: set[tuple[int, str]] = set()

    def place(self, response: Any, row: Row) -> None:
        """Put one row into the response."""
        struct = response
        *way, last = self._level.path
        for field in way:
            found = self._find(struct, field, row)
            if found < 0:
                found = self._append(struct, field, row, self._blank(field, row))
            struct = getattr(struct, field.name)[found]
        found = self._find(struct, last, row)
        refused = self.refused_row(row)
        if found < 0:
            self._append(struct, last, row, refused)
        else:
            getattr(struct, last.name)[found] = refused

    def refused_row(self, row: Row) -> Any:
        """The row of an error."""
        made = self._blank(self._level.path[-1], row)
        setattr(made, self._level.field, self._code)
        if self._reason is not None and hasattr(made, REASON):
            made.error_message = self._reason
        return made

    def _find(self, struct: Any, field: WireField, row: Row) -> int:
        """The index of the element that this row identifies; -1 if missing. Copies the list for changes."""
        kinds = self._kinds(field, row)
        place = (id(struct), field.name)
        if place not in self._copied:
            self._copied.add(place)
            own = [copy.copy(one) for one in getattr(struct, field.name) or ()]
            setattr(struct, field.name, own)
            for index, one in enumerate(own):
                self._known[(*place, tuple(getattr(one, name) for name, _ in kinds))] = index
        if not kinds:
            return -1
        return self._known.get((*place, tuple(row[kind] for _, kind in kinds)), -1)

    def _append(self, struct: Any, field: WireField, row: Row, made: Any) -> int:
        own = getattr(struct, field.name)
        own.append(made)
        index = len(own) - 1
        self._known[(id(struct), field.name, tuple(row[kind] for _, kind in self._kinds(field, row)))] = index
        return index

    def _kinds(self, field: WireField, row: Row) -> list[tuple[str, str]]:
        assert field.struct is not None
        found = shape_of(field.struct).scalars
        return [(one.name, kind) for one, kind in found if one.exists(self._version) and kind in row]

    def _blank(self, field: WireField, row: Row) -> Any:
        """An element with only its identifying fields."""
        assert field.struct is not None
        kinds = dict(self._kinds(field, row))
        values = {}
        for one in fields_of(field.struct):
            if one.name in kinds and row[kinds[one.name]] is not None:
                values[one.name] = row[kinds[one.name]]
            elif one.name in REPEATED and one.name in row:
                values[one.name] = row[one.name]
            else:
                values[one.name] = nothing(one)
        return field.struct(**values)


def nothing(field: WireField) -> Any:
    """The empty value of a field."""
    if field.kind is Kind.RECORDS:
        return b""
    if field.kind in NUMBERS and not field.is_array and field.default is MISSING:
        return -1
    return empty_value(field)


def interleave(response: Any, version: int, level: Level, rows: Sequence[tuple[Row, bool]], code: int) -> Any:
    """The response of an API whose rows are identified by order only: error rows between the others.

    `rows` are the request's rows, each with whether it gets the error.
    """
    (field,) = level.path
    placing = _Placing(version, level, code, None)
    served = iter(getattr(response, field.name) or ())
    made = copy.copy(response)
    setattr(made, field.name, [placing.refused_row(row) if is_refused else next(served) for row, is_refused in rows])
    return made


def rows_in(names: Names, response: Any, version: int, level: Level, base: Row) -> list[Row]:
    """The rows of a response at a level: each with its identity and that of the request (`base`)."""
    return [row for row, _ in _walk(names, response, version, level.path, base)]


def codes_in(names: Names, response: Any, version: int, level: Level, base: Row) -> Iterator[tuple[Row, int]]:
    """The rows of a response with errors, and their codes."""
    for row, struct in _walk(names, response, version, level.path, base):
        if code := int(getattr(struct, level.field)):
            yield row, code


def _walk(names: Names, struct: Any, version: int, path: tuple[WireField, ...], base: Row) -> Iterator[tuple[Row, Any]]:
    if not path:
        yield base, struct
        return
    for one in getattr(struct, path[0].name) or ():
        row = names.identity(one, shape_of(type(one)), version, base)
        yield from _walk(names, one, version, path[1:], row)


def has_throttle(response: type[Any], version: int) -> bool:
    """Whether responses of this version have a throttle time."""
    return any(field.name == THROTTLE and field.exists(version) for field in fields_of(response))


def with_throttle(response: Any, version: int, throttle_ms: int) -> Any:
    """The response with a throttle time, if it has one."""
    if has_throttle(type(response), version):
        response = copy.copy(response)
        setattr(response, THROTTLE, throttle_ms)
    return response


def with_field(
    names: Names,
    struct: Any,
    version: int,
    path: Sequence[tuple[str, int | None]],
    value: Any,
    base: Row,
    matches: Callable[[Row], bool],
) -> Any:
    """A copy in which the field at the end of a path has another value, in the matching rows.

    A list or struct on the path that is null stays so.
    """
    (name, index), *rest = path
    made = copy.copy(struct)
    content = getattr(struct, name)
    if isinstance(content, list) and (rest or index is not None):
        changed = []
        for number, one in enumerate(content):
            if index is not None and index not in (EACH, number):
                changed.append(one)
            elif not rest:
                changed.append(value)
            else:
                row = names.identity(one, shape_of(type(one)), version, base)
                changed.append(with_field(names, one, version, rest, value, row, matches) if matches(row) else one)
        setattr(made, name, changed)
    elif rest and content is not None:
        setattr(made, name, with_field(names, content, version, rest, value, base, matches))
    elif not rest and index is None:
        setattr(made, name, value)
    return made


def has_field(
    names: Names,
    struct: Any,
    version: int,
    path: Sequence[tuple[str, int | None]],
    base: Row,
    matches: Callable[[Row], bool],
) -> bool:
    """Whether `with_field` would set anything: a list on the path may be empty, or have no matching row."""
    (name, index), *rest = path
    content = getattr(struct, name)
    if index is None:
        return not rest or (content is not None and has_field(names, content, version, rest, base, matches))
    for number, one in enumerate(content or ()):
        if index not in (EACH, number):
            continue
        if not rest:
            return True
        row = names.identity(one, shape_of(type(one)), version, base)
        if matches(row) and has_field(names, one, version, rest, row, matches):
            return True
    return False


EACH: Final = -1
"""In a path: all elements of a list."""
