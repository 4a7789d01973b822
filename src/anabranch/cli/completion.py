"""The words that a shell completes: topics, groups, nodes, APIs, error codes, properties and names of this project.

The functions are click's `shell_complete` callbacks. Names of a cluster come from the cluster that the words before
name, or else from the current context. A completion never fails: it has no words if no cluster answers within
`PATIENCE_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from anabranch.cli.context_store import chosen_ca, chosen_token, current_context, read_contexts

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from anabranch.broker.config.config_def import ConfigKey
    from anabranch.clients.admin import Admin

    Item = CompletionItem[str]
    Completer = Callable[[click.Context, click.Parameter, str], list[Item]]
    Words = Mapping[str, str]
    """A word -> its help text, which may be empty."""

PATIENCE_S: Final = 0.5
"""With the imports, a completion ends within about a second."""


def topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Item]:
    """Complete the name of a topic; internal ones after an underscore."""
    if "url" in ctx.params:
        names = [str(row["topic"]) for row in _control_rows(ctx, "/v1/topics")]
    else:
        names = _cluster_names(ctx, lambda admin: admin.list_topics(include_internal=True))
    shown = [name for name in names if incomplete.startswith("_") or not name.startswith("__")]
    return _matching(ctx, param, dict.fromkeys(sorted(shown), ""), incomplete)


def groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Item]:
    """Complete the id of a group of any kind."""
    if "url" in ctx.params:
        found = {str(row["group"]): str(row["state"]) for row in _control_rows(ctx, "/v1/groups")}
    else:
        found = dict(_cluster_names(ctx, _group_states))
    return _matching(ctx, param, dict(sorted(found.items())), incomplete)


def nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Item]:
    """Complete the id of a node of the control plane's cluster."""
    rows = _control_rows(ctx, "/v1/nodes")
    found = {str(row["node"]): "running" if row["running"] else "down" for row in rows}
    return _matching(ctx, param, found, incomplete)


def launched_nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Item]:
    """Complete the id of a node of a process cluster of this machine."""
    found: dict[str, str] = {}
    with contextlib.suppress(Exception), _without_log():
        from anabranch.cluster.process_registry import launched_clusters

        for cluster in asyncio.run(asyncio.wait_for(launched_clusters(), PATIENCE_S)):
            found |= {str(row["id"]): "running" if row["pid"] > 0 else "down" for row in cluster.nodes}
    return _matching(ctx, param, found, incomplete)


def rules(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Item]:
    """Complete the name of a fault rule."""
    found = {str(row["name"]): "" for row in _control_rows(ctx, "/v1/faults")}
    return _matching(ctx, param, found, incomplete)


def snapshots(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Item]:
    """Complete the name of a snapshot."""
    found = {str(row["snapshot"]): "" for row in _control_rows(ctx, "/v1/state/snapshots")}
    return _matching(ctx, param, found, incomplete)


def stories(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Item]:
    """Complete the name of a story of the tour."""
    from anabranch.control.tour.guide import STORIES

    return _matching(ctx, param, {story.name: story.title for story in STORIES}, incomplete)


def contexts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Item]:
    """Complete the name of a context."""
    found: dict[str, str] = {}
    with contextlib.suppress(Exception), _without_log():
        found = {name: one.bootstrap_servers for name, one in sorted(read_contexts().by_name.items())}
    return _matching(ctx, param, found, incomplete)


def apis(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Item]:
    """Complete the name of an API."""
    return _matching(ctx, param, _api_names(), incomplete)


def errors(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Item]:
    """Complete the name of an error code."""
    return _matching(ctx, param, _error_names(), incomplete)


def topic_properties(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Item]:
    """Complete NAME=VALUE of a topic property."""
    from anabranch.broker.config.config_def import Scope

    return _assignments(_properties(Scope.TOPIC), incomplete)


def topic_property_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Item]:
    """Complete the name of a topic property."""
    from anabranch.broker.config.config_def import Scope

    found = {name: key.documentation for name, key in _properties(Scope.TOPIC).items()}
    return _matching(ctx, param, found, incomplete)


def broker_properties(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Item]:
    """Complete NAME=VALUE of a broker property."""
    from anabranch.broker.config.config_def import Scope

    return _assignments(_properties(Scope.BROKER), incomplete)


def journal_conditions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Item]:
    """Complete NAME=VALUE of a query of the journal."""
    from anabranch.journal.query import WORDS

    return _conditions(WORDS, ctx, param, incomplete)


def wait_conditions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Item]:
    """Complete NAME=VALUE of a condition to wait for."""
    from anabranch.control.wait_conditions import WORDS

    return _conditions(WORDS, ctx, param, incomplete)


def _conditions(words: Words, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Item]:
    name, found, value = incomplete.partition("=")
    if not found:
        chosen = {str(one).partition("=")[0] for one in ctx.params.get(param.name or "") or ()}
        names = {f"{one}=": text for one, text in words.items() if one not in chosen}
        return _matching(ctx, param, names, incomplete)
    values = CONDITION_VALUES[name](ctx, param, value) if name in words and name in CONDITION_VALUES else []
    return [_item(f"{name}={one.value}", one.help or "") for one in values]


CONDITION_VALUES: Final[Mapping[str, Completer]] = {
    "api": apis,
    "brokers": nodes,
    "error": errors,
    "group": groups,
    "leader": nodes,
    "node": nodes,
    "on": nodes,
    "rule": rules,
    "topic": topics,
    "while_rule": rules,
}
"""The fields of rules, and of conditions, that have such values."""


def _cluster_names(ctx: click.Context, query: Callable[[Admin], Awaitable[Iterable[Any]]]) -> list[Any]:
    """The result of a query of the cluster that the command is about; nothing if it does not answer in time."""
    with contextlib.suppress(Exception), _without_log(), ctx.scope(cleanup=False):
        from anabranch import Admin
        from anabranch.cli.remote import security

        servers = ctx.params.get("bootstrap") or current_context().bootstrap_servers
        credentials = security()

        async def ask() -> list[Any]:
            async with asyncio.timeout(PATIENCE_S), Admin(servers, **credentials) as admin:
                return list(await query(admin))

        return asyncio.run(ask())
    return []


async def _group_states(admin: Admin) -> Iterable[tuple[str, str]]:
    from anabranch.clients.group_admin import list_all_groups

    return [(one.group_id, f"{one.kind}, {one.state}") for one in await list_all_groups(admin.network)]


def _control_rows(ctx: click.Context, path: str) -> list[dict[str, Any]]:
    """The rows of a list of the control plane; none if it does not answer in time."""
    with contextlib.suppress(Exception), _without_log(), ctx.scope(cleanup=False):
        from anabranch.control.client import ControlClient

        url = ctx.params.get("url") or current_context().control
        ca_file = chosen_ca(ctx.params.get("ca_file") or "")
        client = ControlClient(url, chosen_token(ctx.params.get("token") or ""), ca_file)
        rows: list[dict[str, Any]] = client.ask("GET", path, patience_s=PATIENCE_S)
        return rows
    return []


@contextlib.contextmanager
def _without_log() -> Iterator[None]:
    """Log nothing: a shell would show it in the middle of the user's line."""
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _properties(scope: Any) -> Mapping[str, ConfigKey]:
    from anabranch.broker.config.config_def import config_def

    return {
        name: key for name, key in config_def(scope).keys_by_name().items() if not (key.without_effect or key.internal)
    }


def _assignments(keys: Mapping[str, ConfigKey], incomplete: str) -> list[Item]:
    """The properties as `NAME=`; after the equals sign, the values that one property accepts."""
    name, found, _ = incomplete.partition("=")
    if not found:
        return [_item(f"{one}=", key.documentation) for one, key in keys.items() if one.startswith(incomplete)]
    if name not in keys:
        return []
    from anabranch.broker.config.config_def import Kind

    key = keys[name]
    choices = key.choices if key.kind in (Kind.STRING, Kind.LIST) else ()
    if key.kind is Kind.BOOLEAN:
        choices = ("true", "false")
    values = [f"{name}={choice}" for choice in choices]
    return [_item(one) for one in values if one.startswith(incomplete)]


def _api_names() -> Words:
    from anabranch.protocol.registry import BY_NAME

    return dict.fromkeys(sorted(BY_NAME), "")


def _error_names() -> Words:
    from anabranch.protocol.errors import ErrorCode

    return {code.name: str(code.value) for code in sorted(ErrorCode, key=lambda code: code.name)}


def _matching(ctx: click.Context, param: click.Parameter, found: Words, incomplete: str) -> list[Item]:
    """The words that begin as typed, without those that a repeatable parameter has already."""
    given = ctx.params.get(param.name or "")
    taken = set(map(str, given)) if isinstance(given, tuple) else set()
    return [_item(word, text) for word, text in found.items() if word.startswith(incomplete) and word not in taken]


def _item(word: str, text: str = "") -> Item:
    from click.shell_completion import CompletionItem

    return CompletionItem(word, help=text or None)
