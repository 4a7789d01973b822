"""Refuses rules that can never hit, and suggests corrections. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.coordinators.runtime.failpoints import STEPS as COORDINATOR_STEPS
from anabranch.broker.dispatch.dispatcher import HANDLERS
from anabranch.clock.spans import parse_seconds
from anabranch.controller.failpoints import STEPS
from anabranch.faults import paths
from anabranch.faults.corruption import RECORDS, has_records
from anabranch.faults.matching import ANY, BROKER_CLIENT, BROKERS_ONLY, OPEN_END, UPDATES, ends_of, version_span
from anabranch.faults.request_fields import NAMEABLE, PARTITION, TOP, TOPIC, kinds_of, levels_of
from anabranch.faults.rewriting import has_throttle, level_for
from anabranch.faults.rule import FIELDS, KILL, SILENT, WHAT, WHEN, about_requests, is_about_links, is_set
from anabranch.faults.rule_json import InvalidRule
from anabranch.protocol.answerable import answerable
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.registry import BY_NAME
from anabranch.protocol.suggestion import suggest

if TYPE_CHECKING:
    from anabranch.faults.rule import Rule

SPANS: Final[Mapping[str, tuple[int, int]]] = {one.name: version_span(one.versions) for one in HANDLERS}
"""API -> its served versions."""
ACTIONS: Final = tuple(field.name for field in FIELDS if field.metadata["part"] == WHAT)
TRIGGERS: Final = {
    "disk": ("name", "brokers", "disk"),
    "step": ("name", "brokers", "step", "node", "on", "elect", "topic", "partition"),
}
"""Trigger -> the fields that its rules may have; `topic` and `partition` are those of an election."""
CLIENTS_ONLY: Final = frozenset(
    {
        *(
            "Produce",
            "OffsetCommit",
            "OffsetFetch",
            "JoinGroup",
            "Heartbeat",
            "LeaveGroup",
            "SyncGroup",
            "DescribeGroups",
        ),
        *("ListGroups", "InitProducerId", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit", "ConsumerGroupHeartbeat"),
        *("ConsumerGroupDescribe", "ConsumerGroupPosition", "StreamsGroupHeartbeat", "StreamsGroupDescribe"),
    }
)
"""APIs that brokers never request from each other."""
REQUESTER_FIELDS: Final = ("broker", "controller", "group-coordinator", "transaction-coordinator", "share-partitions")
START: Final = "start"
NO_ANSWER: Final = (*SILENT, "stale_metadata")
HOW: Final = ("level", "after_work", "on")
"""Fields that modify another effect."""


def check(
    rule: Rule, brokers: Collection[int], listeners: Collection[str] = (), spans: Mapping[str, tuple[int, int]] = SPANS
) -> None:
    """Raise InvalidRule if a rule can never hit in a cluster of these brokers, with a suggestion.

    Without `listeners`, listener names are not checked. `spans`: API -> the accepted versions.
    """
    _check_numbers(rule)
    _check_actions(rule)
    _check_brokers(rule, brokers)
    if not about_requests(rule):
        _check_happening(rule)
        return
    for name in rule.api:
        if name not in SPANS:
            raise InvalidRule(f"unknown API {name!r}; {suggest(name, SPANS)}")
        if name not in spans:
            raise InvalidRule(f"{name} is not served; the APIs are {_list_names(spans)}")
    if rule.listener and listeners and rule.listener not in listeners:
        raise InvalidRule(f"unknown listener {rule.listener!r}; {suggest(rule.listener, listeners)}")
    versions = _versions(rule, spans)
    _check_askers(rule, brokers)
    _check_names(rule, versions)
    if rule.error:
        _check_error(rule, versions)
    elif rule.level:
        raise InvalidRule("level needs error")
    if rule.throttle_ms:
        _check_responses(rule, versions, "throttle time", has_throttle)
    if rule.corrupt == RECORDS:
        _check_responses(rule, versions, "records", lambda response, _: has_records(response))
    if rule.edit:
        _check_edit(rule, versions)


def _check_numbers(rule: Rule) -> None:
    for name, least in (
        *(("times", 0), ("after", 0), ("every", 1), ("first", 0)),
        *(("throttle_ms", 0), ("truncate", 0), ("drip", 0)),
    ):
        if getattr(rule, name) < least:
            raise InvalidRule(f"{name} is at least {least}, not {getattr(rule, name)}")
    if not 0 < rule.probability <= 1:
        raise InvalidRule(f"probability must be above 0 and at most 1, not {rule.probability:g}")
    delays = rule.delay_ms
    if any(one < 0 for one in delays) or list(delays) != sorted(delays):
        raise InvalidRule(f"delay_ms must be one number, or several in increasing order, not {_list_names(delays)}")
    try:
        over = rule.until and parse_seconds(rule.until) == 0
    except ValueError as error:
        raise InvalidRule(f"until: {error}") from None
    if over:
        raise InvalidRule(f"until {rule.until} has no duration")
    if rule.while_rule and rule.while_rule == rule.name:
        raise InvalidRule(f"rule {rule.name} waits for itself")
    for field in FIELDS:
        choices, chosen = field.metadata["one_of"], getattr(rule, field.name)
        if choices and chosen and chosen not in choices:
            raise InvalidRule(f"{field.name} is {_list_names(choices)}, not {chosen!r}")


def _check_actions(rule: Rule) -> None:
    chosen = [name for name in ACTIONS if is_set(rule, name)]
    if not set(chosen) - set(HOW):
        raise InvalidRule(f"the rule has no action; the actions are {_list_names(set(ACTIONS) - set(HOW))}")
    silent = [name for name in chosen if name in NO_ANSWER and rule.disconnect != "middle"]
    if len(silent) > 1:
        raise InvalidRule(f"{_list_names(silent)} are mutually exclusive")
    answers = [name for name in chosen if name not in (*NO_ANSWER, *HOW, "delay_ms", "hold", "node", "elect")]
    if rule.node == KILL and not rule.on and (silent or answers):
        raise InvalidRule(f"a killed broker sends no responses: leave out {_list_names([*silent, *answers])}")
    if silent and answers:
        raise InvalidRule(f"{silent[0]} sends no response: leave out {_list_names(answers)}")


def _versions(rule: Rule, spans: Mapping[str, tuple[int, int]]) -> Mapping[str, range]:
    """API -> the served versions that the rule is about."""
    try:
        first, last = version_span(rule.versions)
    except ValueError:
        raise InvalidRule(f"versions are written as 7, 3-9 or 12-, not {rule.versions!r}") from None
    found = {}
    for name in rule.api or spans:
        served_first, served_last = spans[name]
        found[name] = range(max(first, served_first), min(last, served_last) + 1)
        if rule.api and not found[name]:
            given = f"{first}-" if last == OPEN_END else rule.versions
            raise InvalidRule(f"{name} has no version {given}; served are {served_first}-{served_last}")
    if not any(found.values()):
        raise InvalidRule(f"no API has version {rule.versions}")
    return {name: span for name, span in found.items() if span}


def _check_brokers(rule: Rule, brokers: Collection[int]) -> None:
    try:
        links = [ends_of(link) for link in rule.link]
    except ValueError as error:
        raise InvalidRule(str(error)) from None
    if to_itself := [source for source, target in links if source == target != ANY]:
        raise InvalidRule(f"requests of broker {to_itself[0]} to itself use no link; name another broker, or *")
    ends = [one for link in links for one in link]
    for broker in (*rule.brokers, *rule.on, *(int(one) for one in ends if one != ANY)):
        if broker not in brokers:
            raise InvalidRule(f"there is no broker {broker}; there are {_list_names(brokers)}")
    if rule.on and not rule.node:
        raise InvalidRule("on needs node")
    if rule.node == START and not rule.on:
        raise InvalidRule("start needs `on`: the broker that gets the request is running")
    if rule.elect and not (rule.topic and rule.partition):
        raise InvalidRule("elect needs topic and partition")


def _check_happening(rule: Rule) -> None:
    """Check that a rule about disks or steps has no conditions on requests."""
    about = "disk" if rule.disk else "step"
    takes = [name for name in TRIGGERS[about] if rule.elect or name not in (TOPIC, PARTITION)]
    other = [
        field.name
        for field in FIELDS
        if field.metadata["part"] != WHEN and is_set(rule, field.name) and field.name not in takes
    ]
    if other:
        raise InvalidRule(f"a rule about {about} has no conditions on requests: leave out {_list_names(other)}")
    known = {*STEPS, *COORDINATOR_STEPS}
    for step in rule.step:
        name, _, count = step.rpartition(":")
        if step not in known and not (count.isdigit() and name in known):
            raise InvalidRule(f"unknown step {step!r}; {suggest(step, known)}")


def _check_askers(rule: Rule, brokers: Collection[int]) -> None:
    """Check that clients do not send requests of brokers, and vice versa."""
    between = is_about_links(rule)
    only = [name for name in rule.api if BY_NAME[name].key in BROKERS_ONLY]
    if only and not between:
        raise InvalidRule(f"only brokers and controllers send {_list_names(only)}; add between_brokers")
    never = [name for name in rule.api if name in CLIENTS_ONLY]
    if never and between:
        raise InvalidRule(f"brokers never send {_list_names(never)} to each other; leave out between_brokers")
    if rule.stale_metadata and rule.api not in ((), UPDATES):
        raise InvalidRule(f"brokers get metadata by {_list_names(UPDATES)}; leave out api")
    if rule.client_id and between:
        names = [f"{name}-{broker}" for name in REQUESTER_FIELDS for broker in brokers]
        if not any(fnmatch.fnmatchcase(one, rule.client_id) for one in (*names, *(f"{one}-fetcher" for one in names))):
            raise InvalidRule(
                f"no broker has the client id {rule.client_id!r}; their client ids are {_list_names(names)}"
            )
    if BROKER_CLIENT.fullmatch(rule.client_id) and not between:
        raise InvalidRule(f"{rule.client_id!r} is the client id of a broker; add between_brokers")
    if rule.principal and ":" not in rule.principal:
        raise InvalidRule(f"a principal is written as User:{rule.principal}")


def _check_names(rule: Rule, versions: Mapping[str, range]) -> None:
    """Check that the requests or their responses have the fields which the rule names."""
    named = [kind for kind in NAMEABLE if getattr(rule, kind)]
    for kind in named:
        able = [api for api, span in versions.items() if any(_names(api, version, kind) for version in span)]
        unable = [api for api in rule.api if api not in able]
        if unable:
            others = _list_names(sorted(api for api in SPANS if _names(api, SPANS[api][1], kind)))
            raise InvalidRule(f"{_list_names(unable)} has no {kind}; APIs that have one are {others}")
    if rule.first and rule.first < 1:
        raise InvalidRule("first must be at least 1")


def _names(api: str, version: int, kind: str) -> bool:
    row = BY_NAME[api]
    return kind in kinds_of(row.request, version) or any(kind in one.kinds for one in levels_of(row, version))


def _check_error(rule: Rule, versions: Mapping[str, range]) -> None:
    if rule.error not in ErrorCode.__members__ or rule.error == ErrorCode.NONE.name:
        raise InvalidRule(f"unknown error {rule.error!r}; {suggest(rule.error, ErrorCode.__members__)}")
    code = ErrorCode[rule.error]
    for name in rule.api:
        api, span = BY_NAME[name], versions[name]
        possible = answerable(name, kinds_of(api.request, span[-1]))
        if code not in possible:
            raise InvalidRule(
                f"{name} never returns {rule.error}; it may return {_list_names(one.name for one in possible)}"
            )
        able = [version for version in span if version >= possible[code]]
        if not able:
            raise InvalidRule(f"{name} returns {rule.error} from version {possible[code]} on")
        if all(level_for(rule, api, version) is None for version in able):
            levels = {one.title for version in able for one in levels_of(api, version)}
            raise InvalidRule(
                f"{name} has no error of level {rule.level}; its levels are {_list_names(sorted(levels))}"
                if levels
                else f"{name} v{able[0]}-{able[-1]} has no error code"
            )
        if rule.partition and all(_level_title(rule, name, version) == TOP for version in able) and not rule.level:
            raise InvalidRule(f"an error of {name} applies to the whole request; leave out partition, or set level=top")


def _level_title(rule: Rule, api: str, version: int) -> str:
    level = level_for(rule, BY_NAME[api], version)
    return "" if level is None else level.title


def _check_responses(
    rule: Rule, versions: Mapping[str, range], what: str, has: Callable[[type[Any], int], bool]
) -> None:
    """Check that responses of the rule's APIs have what the rule changes."""
    unable = [name for name in rule.api if not any(has(BY_NAME[name].response, one) for one in versions[name])]
    if unable:
        able = _list_names(name for name, span in SPANS.items() if has(BY_NAME[name].response, span[1]))
        raise InvalidRule(f"responses of {_list_names(unable)} have no {what}; those that have are of {able}")


def _check_edit(rule: Rule, versions: Mapping[str, range]) -> None:
    """Check that some version has every edited field, and can hold its value."""
    if len(rule.api) != 1:
        raise InvalidRule("edit needs one api")
    (name,) = rule.api
    able = set(versions[name])
    for path, value in rule.edit.items():
        wrong = {one: paths.check(BY_NAME[name].response, one, path, value) for one in reversed(versions[name])}
        if all(wrong.values()):
            raise InvalidRule(f"edit {path}: {next(iter(wrong.values()))}")
        able -= {one for one, reason in wrong.items() if reason}
    if not able:
        raise InvalidRule(f"no version of {name} has all of {_list_names(rule.edit)}: write a rule for each")


def _list_names(things: Iterable[object]) -> str:
    return ", ".join(map(str, things))
