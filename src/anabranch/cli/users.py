"""`anabranch users`: creates, lists and deletes SCRAM users."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import click

from anabranch.cli.command_group import CommandGroup
from anabranch.cli.examples import examples
from anabranch.cli.remote import as_json, bootstrap, run, tell, tell_none, with_admin

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
mechanism = click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(MECHANISMS),
    help="The mechanism; may be repeated. Default: both.",
)


@click.group(
    cls=CommandGroup,
    name="users",
    epilog="""\b
Examples:
  anabranch users set alice                           prompt for the password
  anabranch users set alice --password-file secret    read it from a file, or from a pipe with -
  anabranch users list
  anabranch users delete alice --mechanism SCRAM-SHA-256
""",
)
def command() -> None:
    """Create, list and delete users that log in with SCRAM, while brokers run."""


@command.command(
    name="set",
    epilog="""\b
Examples:
  anabranch users set alice
  anabranch users set alice --mechanism SCRAM-SHA-512 --iterations 8192
  anabranch users set alice --password-file secret
""",
)
@click.argument("user")
@mechanism
@click.option(
    "--iterations",
    default=4096,
    show_default=True,
    type=click.IntRange(4096, 16384),
    help="The iterations of the hash.",
)
@click.option(
    "--password-file",
    type=click.File(),
    help="A file with the password in its first line; -: standard input.",
)
@bootstrap
def set_password(
    user: str, mechanisms: tuple[str, ...], iterations: int, password_file: IO[str] | None, bootstrap: str
) -> None:
    """Create USER, or change its password.

    Brokers apply it at once.
    """
    if password_file is None:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = password_file.readline().rstrip("\r\n")
    if not password:
        raise click.UsageError("the password must not be empty")

    async def act(admin: Admin) -> None:
        await admin.set_password(user, password, mechanisms=mechanisms or MECHANISMS, iterations=iterations)
        click.echo(f"user {user} logs in with {' and '.join(mechanisms or MECHANISMS)}")

    run(bootstrap, act)


@command.command(
    name="list",
    epilog=examples("anabranch users list", "anabranch users list --json"),
)
@as_json
@with_admin()
async def list_users(admin: Admin, as_json: bool) -> None:
    """List users, with their SCRAM mechanisms and iterations."""
    users = await admin.describe_users()
    if not users:
        tell_none(as_json, "no users")
    for user, credentials in sorted(users.items()):
        shown = ", ".join(f"{name} ({rounds} iterations)" for name, rounds in credentials.items())
        tell(as_json, {"user": user, "credentials": credentials}, [f"{user}: {shown}"])


@command.command(
    epilog=examples("anabranch users delete alice", "anabranch users delete alice --mechanism SCRAM-SHA-256"),
)
@click.argument("user")
@mechanism
@with_admin()
async def delete(admin: Admin, user: str, mechanisms: tuple[str, ...]) -> None:
    """Delete the passwords of USER.

    Open connections stay until their session ends.
    """
    await admin.delete_user(user, mechanisms=mechanisms or None)
    click.echo(f"user {user} is deleted" if not mechanisms else f"user {user}: {', '.join(mechanisms)} is deleted")
