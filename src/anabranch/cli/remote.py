"""The common parts of commands that query a cluster: its address, the timeout, the messages for errors.

A listing is printed as lines or, with `--json`, as one JSON object per entry.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.context_store import BOOTSTRAP_DEFAULT, current_context, is_from_context
from anabranch.cli.table import Cell, table_lines
from anabranch.clients.authentication import AuthenticationFailed
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.runtime.interruptible import run_interruptible

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.clients.security import SecurityArguments

_bootstrap = click.option(
    "--bootstrap-server",  # as in Kafka's own tools
    "--bootstrap-servers",
    "bootstrap",
    default=lambda: current_context().bootstrap_servers,
    show_default=f"those of `anabranch context`, else {BOOTSTRAP_DEFAULT}",
    envvar="ANABRANCH_BOOTSTRAP_SERVERS",
    show_envvar=True,
    metavar="HOST:PORT[,...]",
    help="Bootstrap brokers of the cluster.",
)
SECURITY = "anabranch.security"
"""The key under which click keeps the file with this command's client properties."""


def _keep_path(ctx: click.Context, _: click.Parameter, path: str | None) -> None:
    ctx.meta[SECURITY] = path


_command_config = click.option(
    "--command-config",
    type=click.Path(dir_okay=False),
    envvar="ANABRANCH_COMMAND_CONFIG",
    show_envvar=True,
    expose_value=False,
    callback=_keep_path,
    help="A file of Kafka client properties for authentication, such as security.protocol and sasl.jaas.config.",
)


def bootstrap(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the cluster's address and this command's credentials (`security`)."""
    return _bootstrap(_command_config(command))


def security() -> SecurityArguments:
    """The security arguments of this command's clients, from its file of client properties, if it has one."""
    given = client_properties()
    if not given:
        return {}
    from anabranch.clients.security_config import security_of

    with _report_errors():
        return {"security": security_of(given)}


def client_properties() -> dict[str, str]:
    """The content of the client properties file, or those of the context whose cluster this command uses."""
    ctx = click.get_current_context()
    path = ctx.meta.get(SECURITY)
    if path is None:
        return dict(current_context().client_properties) if is_from_context(ctx, "bootstrap") else {}
    from pathlib import Path

    from anabranch.broker.config.properties_file import properties_in

    with _report_errors():
        return dict(properties_in(Path(path).read_text()))


@contextlib.contextmanager
def _report_errors() -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError) as error:
        path = click.get_current_context().meta.get(SECURITY)
        place = "the current context" if path is None else f"--command-config {path}"
        raise click.UsageError(f"{place}: {error}") from None


timeout = click.option("--timeout", "timeout_s", default=60.0, show_default=True, help="The timeout in seconds.")
as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")


def tell(as_json: bool, row: Mapping[str, Any], lines: Iterable[str]) -> None:
    """Print one entry of a listing: as JSON, or as lines."""
    for line in [json.dumps(row, ensure_ascii=False)] if as_json else lines:
        click.echo(line)


def tell_none(as_json: bool, text: str) -> None:
    """Say on stderr that a listing has no entries; a program reads no lines."""
    if not as_json:
        click.echo(text, err=True)


def tell_table(
    as_json: bool, headings: Sequence[str], rows: Iterable[tuple[Mapping[str, Any], Sequence[Cell]]], none: str
) -> None:
    """Print a listing. Each entry has a JSON row, and the cells of a table's row. `none` is said without entries."""
    entries = list(rows)
    if not entries:
        tell_none(as_json, none)
    lines = table_lines(headings, [cells for _, cells in entries])
    if as_json:
        lines = [json.dumps(row, ensure_ascii=False) for row, _ in entries]
    elif not has_headings():
        lines = lines[1:]
    for line in lines:
        click.echo(line)


def has_headings() -> bool:
    """Whether tables begin with their headings: on a terminal; another program reads entries only."""
    return sys.stdout.isatty()


def run(
    bootstrap_servers: str,
    act: Callable[[Admin], Awaitable[None]],
    timeout_s: float = 30.0,
    *,
    hints: Mapping[ErrorCode, str] | None = None,
) -> None:
    """Run an action with an Admin; an error becomes one line and exit code 1.

    `hints` name remedies for errors, where this command knows more than `HINTS`.
    """
    from anabranch import Admin

    async def main() -> None:
        async with Admin(bootstrap_servers, request_timeout_ms=int(timeout_s * 1000), **security()) as admin:
            await act(admin)

    with refusals(bootstrap_servers, hints=hints):
        run_interruptible(main())


def with_admin(
    *, hints: Mapping[ErrorCode, str] | None = None
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Pass a command an `Admin`, made from the options of `bootstrap`; for `hints` see `run`."""

    def decorate(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @bootstrap
        @functools.wraps(command)
        def connect(*, bootstrap: str, **options: Any) -> None:
            run(bootstrap, lambda admin: command(admin, **options), hints=hints)

        return connect

    return decorate


@contextlib.contextmanager
def refusals(bootstrap_servers: str, *, hints: Mapping[ErrorCode, str] | None = None) -> Iterator[None]:
    """Turn a cluster's errors and failed connections into one line and exit code 1; a wrong value into exit code 2."""
    try:
        with cluster_refusals(bootstrap_servers, hints=hints):
            yield
    except ValueError as error:
        raise click.UsageError(str(error)) from None


@contextlib.contextmanager
def cluster_refusals(bootstrap_servers: str, *, hints: Mapping[ErrorCode, str] | None = None) -> Iterator[None]:
    """Turn a cluster's errors and failed connections into one line and exit code 1."""
    try:
        yield
    except KafkaError as error:
        hint = (hints or {}).get(error.code) or HINTS.get(error.code)
        raise click.ClickException(f"{error}{'; ' + hint if hint else ''}") from None
    except AuthenticationFailed as error:
        raise click.ClickException(f"authentication failed: {error}") from None
    except (ConnectionError, TimeoutError) as error:
        reason = str(error) or "no answer"
        raise click.ClickException(f"{reason}; is a cluster running at {bootstrap_servers}?") from None


HINTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic: `anabranch topics list` shows the topics",
    ErrorCode.INVALID_CONFIG: "write --config NAME=VALUE with one of Kafka's topic properties",
}
