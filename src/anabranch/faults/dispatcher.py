"""A dispatcher that applies fault rules. A node without rules uses its own dispatcher, at no cost.

Rules apply in order. The first rule that matches a request is the outermost: it decides whether the later rules and the
node process the request, and it changes the response last.

A rule about some of a request's rows leaves the other rows to the node: matching rows are removed from the request, and
added to the response with the error. Three kinds of requests are processed whole, and then their response is changed: a
Fetch, because its session would forget the removed rows; a request that does not name its response's rows (Metadata of
all topics), so that a match shows only in the response; and one whose response has further rows.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from anabranch.broker.dispatch.dispatcher import Dispatcher, error_response
from anabranch.broker.dispatch.request_context import CloseConnection
from anabranch.faults.corruption import (
    RECORDS,
    DamagedResponse,
    SilentResponse,
    damages_bytes,
    has_matching_records,
    with_corrupted_records,
)
from anabranch.faults.matching import FETCH, Index, NodeContext, RequestView
from anabranch.faults.paths import check, parse
from anabranch.faults.request_fields import Row, derivable, levels_of, without
from anabranch.faults.rewriting import (
    empty_answer,
    has_field,
    has_throttle,
    interleave,
    level_for,
    rows_in,
    with_errors,
    with_field,
    with_throttle,
)
from anabranch.faults.rule import FREEZE, KILL
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from anabranch.broker.authorization.peer import ConnectionState, Peer
    from anabranch.faults.active_rule import ActiveRule
    from anabranch.faults.request_fields import Level
    from anabranch.faults.rule import Rule
    from anabranch.protocol.registry import Api

Rest = Callable[[RequestView], Awaitable[Any]]
KINDS_MAX: Final = 4096
"""The size of the cache from kinds of requests to rules: client ids can be arbitrary."""
UNKNOWN: Final[Any] = object()


class FaultInjectingDispatcher(Dispatcher):
    """The dispatcher of one node, with the rules about it."""

    def __init__(self, inner: Dispatcher, at: NodeContext) -> None:
        self.inner = inner
        self.audiences = inner.audiences
        self.requests = inner.requests
        self.throttling = inner.throttling
        self.long_polls = inner.long_polls
        self._at = at
        self._rules: Sequence[ActiveRule] = ()
        self._about: dict[tuple[Any, ...], tuple[Sequence[ActiveRule], Index] | None] = {}
        """(API key, version, client id, and the peer if a rule names peers) -> the rules about such requests."""
        self._by_peer = False
        self._counted: WeakKeyDictionary[ConnectionState, int] | None = None
        """Connection -> number of requests, while a rule needs it; the address and port may be those of a closed one.
        """

    def set_rules(self, rules: Sequence[ActiveRule], peers: Sequence[Peer]) -> None:
        """Apply these rules from now on; `peers` are the open connections."""
        for one in rules:
            if one.rule.first and one not in self._rules:
                one.matcher.leave_out(peer.connection for peer in peers)
        self._rules = rules
        self._by_peer = any(one.matcher.names_peers for one in rules)
        self._about.clear()
        if any(one.rule.first for one in rules):
            if self._counted is None:
                self._counted = WeakKeyDictionary()
        else:
            self._counted = None

    def answer(self, request: DecodedRequest, peer: Peer) -> Coroutine[Any, Any, Any]:
        """See Dispatcher. Raises a ResponseOverride for a damaged response."""
        number = 0
        if self._counted is not None:
            number = self._counted.get(peer.connection, 0) + 1
            self._counted[peer.connection] = number
        kind: tuple[Any, ...] = (request.api.key, request.version, request.client_id)
        if self._by_peer:
            kind = (*kind, peer.host, peer.listener, peer.principal)
        about = self._about.get(kind, UNKNOWN)
        if about is UNKNOWN:
            about = self._about[kind] = self._learn(request, peer)
        if about is not None and request.body is not None:
            rules, index = about
            view = RequestView(request, peer, number, self._at)
            for position in index.candidates(view):
                armed = rules[position]
                if (armed.is_behind or not armed.spent) and armed.matcher.fits(view):
                    return self._through(view, rules, position)
        return self.inner.answer(request, peer)

    def may_match(self, key: int, version: int, client_id: str | None, peer: Peer) -> bool:
        """Whether requests of this kind must pass here: a rule is about them, or all requests are counted."""
        return self._counted is not None or any(
            one.matcher.is_about(key, version, client_id, peer) for one in self._rules
        )

    def _learn(self, request: DecodedRequest, peer: Peer) -> tuple[Sequence[ActiveRule], Index] | None:
        """Find and cache the rules about this kind of request."""
        if len(self._about) >= KINDS_MAX:
            self._about.clear()
        key, version, client_id = request.api.key, request.version, request.client_id
        mine = [
            one
            for one in self._rules
            if one.matcher.is_about(key, version, client_id, peer) and _can_change(one.rule, request.api, version)
        ]
        return (mine, Index([one.matcher for one in mine])) if mine else None

    async def _through(self, view: RequestView, rules: Sequence[ActiveRule], position: int) -> Any:
        """The response under the rules from `position` on."""
        for at in range(position, len(rules)):
            armed = rules[at]
            if not armed.spent and armed.matcher.fits(view):
                return await self._under(armed, view, functools.partial(self._behind, rules, at))
            if armed.is_behind and armed.matcher.fits(view):
                await armed.catch_up()
        return await self.inner.answer(view.request, view.peer)

    async def _behind(self, rules: Sequence[ActiveRule], position: int, view: RequestView) -> Any:
        return await self._through(view, rules, position + 1)

    async def _under(self, armed: ActiveRule, view: RequestView, rest: Rest) -> Any:
        rule, matcher, request = armed.rule, armed.matcher, view.request
        level = level_for(rule, request.api, request.version) if rule.error else None
        if rule.error and level is None:
            return await rest(view)
        inside = Undelivered(rest)
        if not _depends_on_response(rule, request) and (
            not matcher.names_rows or any(map(matcher.surely_matches, view.rows))
        ):
            if await _decide(armed, view):
                return await _apply_rule(armed, view, level, inside)
            await armed.catch_up()
            return await rest(view)
        response = await inside(view)
        if response is None or not _is_about(armed, view, response) or not await _decide(armed, view):
            return inside.deliver(response)
        return await _apply_rule(armed, view, level, inside, response)


async def _decide(armed: ActiveRule, view: RequestView) -> bool:
    """Decide whether a matching request is hit."""
    return armed.hit(view) if armed.decide is None else await armed.decide_remotely(view)


def _can_change(rule: Rule, api: Api, version: int) -> bool:
    """Whether responses of this version have the fields that a rule sets, and these can hold the values."""
    if rule.throttle_ms and not has_throttle(api.response, version):
        return False
    return not any(check(api.response, version, path, value) for path, value in rule.edit.items())


def _depends_on_response(rule: Rule, request: DecodedRequest) -> bool:
    """Whether only the response shows if the rule has an effect: a Fetch may return no records, and no partitions."""
    return rule.corrupt == RECORDS or (bool(rule.edit) and request.api.key == FETCH)


def _is_about(armed: ActiveRule, view: RequestView, response: Any) -> bool:
    """Whether a response has a row that the rule is about and that the request did not name, or what it changes."""
    request, rule, matches = view.request, armed.rule, armed.matcher.matches
    names, base = view.names, view.base
    if rule.corrupt == RECORDS:
        return has_matching_records(names, response, request.version, base, matches)
    if _depends_on_response(rule, request):
        return any(has_field(names, response, request.version, parse(one), base, matches) for one in rule.edit)
    return any(
        armed.matcher.surely_matches(row)
        for level in levels_of(request.api, request.version)
        for row in rows_in(names, response, request.version, level, base)
    )


async def _apply_rule(
    armed: ActiveRule, view: RequestView, level: Level | None, inside: Undelivered, response: Any = None
) -> Any:
    """Apply a rule to a request that it hits, and to the response, if that exists already."""
    rule = armed.rule
    late = rule.after_work or response is not None or armed.matcher.is_way_back(view)
    if not late:
        await _wait(armed)
        await _apply_action(armed, view)
    if rule.stale_metadata:
        armed.postpone(functools.partial(inside.rest, view))
        return empty_answer(view.request.api)
    if response is None and (late or not _leaves_undone(armed)):
        response = await _with_error_rows(armed, view, level, inside)
    elif response is not None and level is not None:
        response = _with_error(armed, view, level, response)
    if late:
        await _wait(armed)
        await _apply_action(armed, view)
    if rule.disconnect in ("before", "after"):
        raise CloseConnection(f"rule {rule.name}")
    if rule.silence or rule.half_open:
        raise SilentResponse(armed)
    if response is not None:
        response = _change_response(armed, view, response)
    if damages_bytes(rule):
        inside.damages.append(rule)
    return inside.deliver(response)


class Undelivered:
    """The processing inside a rule. A response that is damaged inside is still returned; the damage is applied last."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        self.damages: list[Rule] = []

    async def __call__(self, view: RequestView) -> Any:
        """The response under the inner rules."""
        try:
            return await self.rest(view)
        except DamagedResponse as spoilt:
            self.damages += spoilt.rules
            return spoilt.response

    def deliver(self, response: Any) -> Any:
        """The response, if no rule inside damages it. Raises DamagedResponse."""
        if self.damages:
            raise DamagedResponse(self.damages, response)
        return response


def _leaves_undone(armed: ActiveRule) -> bool:
    rule = armed.rule
    return rule.disconnect == "before" or ((rule.silence or rule.half_open) and not rule.after_work)


async def _apply_action(armed: ActiveRule, view: RequestView) -> None:
    """Apply the rule's action; a killed broker sends no response."""
    armed.apply_action(view.at.node_id)
    if armed.rule.node == FREEZE:
        await asyncio.sleep(0)  # a frozen broker stops here
    if armed.rule.node == KILL and not armed.rule.on:
        raise CloseConnection(f"rule {armed.rule.name}")


async def _wait(armed: ActiveRule) -> None:
    if armed.rule.hold:
        await armed.pass_barrier()
    if delay_s := armed.delay_s():
        await asyncio.sleep(delay_s)


async def _with_error_rows(armed: ActiveRule, view: RequestView, level: Level | None, rest: Rest) -> Any:
    if level is None:
        return await rest(view)
    rule, request, matcher = armed.rule, view.request, armed.matcher
    if rule.after_work or request.api.key == FETCH or not derivable(level, request.api, request.version):
        response = await rest(view.of(_without_wait(request)) if request.api.key == FETCH else view)
        return _with_error(armed, view, level, _some(response, armed))
    if not level.path:
        return error_response(request, ErrorCode[rule.error], f"rule {rule.name}")
    refused = matcher.rows(view)
    body = without(view.names, request.body, request.version, matcher.matches, copy.copy, {})
    if body is None or len(refused) == len(view.rows):
        response = None if getattr(request.body, "acks", 1) == 0 else empty_answer(request.api)
    else:
        response = await rest(view.of(_like(request, body)))
    code = ErrorCode[rule.error]
    if not level.kinds:
        rows = [(row, matcher.matches(row)) for row in view.rows]
        return interleave(_some(response, armed), request.version, level, rows, code)
    return with_errors(_some(response, armed), request.version, level, refused, code, f"rule {rule.name}")


def _some(response: Any, armed: ActiveRule) -> Any:
    """The response; without one (Produce with acks=0), an error closes the connection, as in Kafka."""
    if response is None:
        raise CloseConnection(f"rule {armed.rule.name}: {armed.rule.error}, without a response that could carry it")
    return response


def _like(request: DecodedRequest, body: Any) -> DecodedRequest:
    return DecodedRequest(request.api, request.version, request.correlation_id, request.client_id, body)


def _without_wait(request: DecodedRequest) -> DecodedRequest:
    """A Fetch without a wait, because its response has an error to report."""
    body = copy.copy(request.body)
    body.max_wait_ms = 0
    return _like(request, body)


def _with_error(armed: ActiveRule, view: RequestView, level: Level, response: Any) -> Any:
    """The response to processed work, with the error in place of its results."""
    rule, request, matcher = armed.rule, view.request, armed.matcher
    code, version, names, base = ErrorCode[rule.error], request.version, view.names, view.base
    if not level.path:
        return error_response(request, code, f"rule {rule.name}")
    if request.api.key == FETCH:
        return response if response.error_code else with_errors(response, version, level, matcher.rows(view), code)
    if not level.kinds:
        path = (*((one.name, None) for one in level.path), (level.field, None))
        return with_field(names, response, version, path, int(code), base, matcher.matches)
    rows: list[Row] = [row for row in rows_in(names, response, version, level, base) if matcher.matches(row)]
    return with_errors(response, version, level, rows, code, f"rule {rule.name}")


def _change_response(armed: ActiveRule, view: RequestView, response: Any) -> Any:
    rule, version, matches = armed.rule, view.request.version, armed.matcher.matches
    if rule.throttle_ms:
        response = with_throttle(response, version, rule.throttle_ms)
    for path, value in rule.edit.items():
        response = with_field(view.names, response, version, parse(path), value, view.base, matches)
    if rule.corrupt == RECORDS:
        response = with_corrupted_records(view.names, response, version, view.base, matches)
    return response
