"""What all commands have in common that ask a cluster: where it is, how long to wait, what to say when it refuses.

A listing is told as lines to a person, or with `--json` as one JSON object for each thing that is listed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from anabranch.clients.authentication import AuthenticationFailed
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.clients.security import SecurityArguments

_bootstrap = click.option(
    "--bootstrap-server",  # as Kafka's own tools spell it
    "--bootstrap-servers",
    "bootstrap",
    default="127.0.0.1:9092",
    show_default=True,
    envvar="ANABRANCH_BOOTSTRAP_SERVERS",
    show_envvar=True,
    metavar="HOST:PORT[,...]",
    help="Brokers of the cluster; the others are learned from them.",
)
SECURITY = "anabranch.security"
"""Where click keeps the file that says how this command is let in."""


def _keep_path(ctx: click.Context, _: click.Parameter, path: str | None) -> None:
    ctx.meta[SECURITY] = path


_command_config = click.option(
    "--command-config",
    type=click.Path(dir_okay=False),
    envvar="ANABRANCH_COMMAND_CONFIG",
    show_envvar=True,
    expose_value=False,
    callback=_keep_path,
    help="How to be let in: a file of Kafka's client properties, such as security.protocol and sasl.jaas.config.",
)


def bootstrap(command: Callable[..., None]) -> Callable[..., None]:
    """Where the cluster is, and how this command is let in (`security`)."""
    return _bootstrap(_command_config(command))


def security() -> SecurityArguments:
    """How clients that this command makes are let in: by its file of Kafka's client properties, if there is one."""
    given = client_properties()
    if not given:
        return {}
    from anabranch.clients.security_config import security_of

    with _blamed():
        return {"security": security_of(given)}


def client_properties() -> dict[str, str]:
    """What the file says, if there is one."""
    path = click.get_current_context().meta.get(SECURITY)
    if path is None:
        return {}
    from pathlib import Path

    from anabranch.broker.config.properties_file import properties_in

    with _blamed():
        return dict(properties_in(Path(path).read_text()))


@contextlib.contextmanager
def _blamed() -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError) as error:
        path = click.get_current_context().meta[SECURITY]
        raise click.UsageError(f"--command-config {path}: {error}") from None


timeout = click.option(
    "--timeout", "timeout_s", default=60.0, show_default=True, help="Seconds to wait for the outcome."
)
as_json = click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object a line.")


def tell(as_json: bool, row: Mapping[str, Any], lines: Iterable[str]) -> None:
    """Write one thing of a listing: an object for a program, or lines for a person."""
    for line in [json.dumps(row, ensure_ascii=False)] if as_json else lines:
        click.echo(line)


def run(
    bootstrap_servers: str,
    act: Callable[[Admin], Awaitable[None]],
    timeout_s: float = 30.0,
    *,
    hints: Mapping[ErrorCode, str] | None = None,
) -> None:
    """Do something with an Admin; what goes wrong becomes one line and exit code 1.

    `hints` say what to do about an error, where this command knows more than `HINTS`.
    """
    from anabranch import Admin

    async def main() -> None:
        async with Admin(bootstrap_servers, request_timeout_ms=int(timeout_s * 1000), **security()) as admin:
            await act(admin)

    with refusals(bootstrap_servers, hints=hints):
        asyncio.run(main())


def with_admin(
    *, hints: Mapping[ErrorCode, str] | None = None
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Give a command an `Admin`, found by the options of `bootstrap`; for `hints` see `run`."""

    def decorate(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @bootstrap
        @functools.wraps(command)
        def connect(*, bootstrap: str, **options: Any) -> None:
            run(bootstrap, lambda admin: command(admin, **options), hints=hints)

        return connect

    return decorate


@contextlib.contextmanager
def refusals(bootstrap_servers: str, *, hints: Mapping[ErrorCode, str] | None = None) -> Iterator[None]:
    """What a cluster refuses, or that there is none, becomes one line and exit code 1; a wrong value, exit code 2."""
    try:
        yield
    except KafkaError as error:
        hint = (hints or {}).get(error.code) or HINTS.get(error.code)
        raise click.ClickException(f"{error}{'; ' + hint if hint else ''}") from None
    except AuthenticationFailed as error:
        raise click.ClickException(f"not let in: {error}") from None
    except (ConnectionError, TimeoutError) as error:
        reason = str(error) or "no answer"
        raise click.ClickException(f"{reason}; is a cluster running at {bootstrap_servers}?") from None
    except ValueError as error:
        raise click.UsageError(str(error)) from None


HINTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic: `anabranch topics list` shows those that exist",
    ErrorCode.INVALID_CONFIG: "write --config NAME=VALUE with one of Kafka's topic properties",
}
