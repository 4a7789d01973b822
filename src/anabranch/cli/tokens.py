"""`anabranch tokens`: manages delegation tokens, with which clients log in instead of a password."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.cli.command_group import CommandGroup
from anabranch.cli.examples import examples
from anabranch.cli.remote import as_json, bootstrap, client_properties, run, tell, tell_none, with_admin
from anabranch.runtime.private_files import write_private_file

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.clients.token_admin import DelegationToken

HOUR_MS = 3_600_000
TRUST = ("ssl.truststore.type", "ssl.truststore.location", "ssl.endpoint.identification.algorithm")
PROPERTIES = """\
security.protocol={protocol}
sasl.mechanism={mechanism}
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="{id}" password="{secret}" \
tokenauth="true";
"""


@click.group(
    cls=CommandGroup,
    name="tokens",
    epilog="""\b
Examples:
  anabranch tokens create alice.properties --hours 8      a file to log in with, also for Kafka's tools
  anabranch tokens list
  anabranch tokens renew tokenid
  anabranch tokens expire tokenid
""",
)
def command() -> None:
    """Create, list, renew and expire tokens, while brokers run.

    They need delegation.token.secret.key, the same on all brokers, and a listener with SCRAM.
    """


@command.command(
    epilog=examples(
        "anabranch tokens create alice.properties --command-config alice-with-password.properties",
        "anabranch tokens create bob.properties --owner User:bob --renewer User:carol --hours 8",
    )
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--owner", metavar="User:NAME", help="The owner; needs the permission CreateTokens. Default: yourself.")
@click.option(
    "--renewer",
    "renewers",
    multiple=True,
    metavar="User:NAME",
    help="A further principal that may renew and expire the token.",
)
@click.option(
    "--hours", type=click.FloatRange(min=0, min_open=True), help="The maximum lifetime. Default: the brokers' setting."
)
@click.option(
    "--protocol",
    type=click.Choice(["SASL_SSL", "SASL_PLAINTEXT"]),
    help="The protocol of the listener. Default: that of --command-config, else SASL_SSL.",
)
@bootstrap
def create(
    file: Path, owner: str | None, renewers: tuple[str, ...], hours: float | None, protocol: str | None, bootstrap: str
) -> None:
    """Create a token, and write it to FILE.

    The file has Kafka's client properties, and only its owner can read it. Its TLS trust settings come from this
    command's properties file.
    """
    if file.exists():
        raise click.ClickException(f"{file} exists; name another file, or remove it")
    if not os.access(file.parent, os.W_OK):  # a token whose secret cannot be written would be lost
        raise click.ClickException(f"{file.parent} is not a directory where files can be written")

    async def act(admin: Admin) -> None:
        lifetime_ms = -1 if hours is None else round(hours * HOUR_MS)
        token = await admin.create_token(owner=owner, renewers=renewers, max_lifetime_ms=lifetime_ms)
        made.append(token)

    made: list[DelegationToken] = []
    run(bootstrap, act)
    (token,) = made
    given = client_properties()
    configured = given.get("security.protocol", "")
    chosen = protocol or (configured if configured.startswith("SASL_") else "SASL_SSL")
    mechanism = given.get("sasl.mechanism", "")
    scram = mechanism if mechanism.startswith("SCRAM") else "SCRAM-SHA-256"
    trust = "".join(f"{name}={given[name]}\n" for name in TRUST if name in given and chosen == "SASL_SSL")
    text = trust + PROPERTIES.format(protocol=chosen, mechanism=scram, id=token.token_id, secret=token.secret)
    write_private_file(file, text.encode())
    click.echo(f"token {token.token_id} of {token.owner}, valid until {_time(token.expires_ms)}: {file}")


@command.command(
    name="list",
    epilog=examples("anabranch tokens list", "anabranch tokens list --owner User:alice --json"),
)
@click.option(
    "--owner", "owners", multiple=True, metavar="User:NAME", help="Only what they own, requested or may renew."
)
@as_json
@with_admin()
async def list_tokens(admin: Admin, owners: tuple[str, ...], as_json: bool) -> None:
    """List the tokens that you may see, without their secrets."""
    tokens = await admin.describe_tokens(owners or None)
    if not tokens:
        tell_none(as_json, "no tokens that you may see")
    for token in tokens:
        row = {
            "token": token.token_id,
            "owner": token.owner,
            "requester": token.requester,
            "renewers": list(token.renewers),
            "expires": _time(token.expires_ms),
            "may_be_renewed_until": _time(token.max_ms),
        }
        until = f"valid until {row['expires']}, or {row['may_be_renewed_until']} if it is renewed"
        tell(as_json, row, [f"{token.token_id} of {token.owner}, {until}"])


@command.command(epilog=examples("anabranch tokens renew tokenid", "anabranch tokens renew tokenid --hours 8"))
@click.argument("token_id")
@click.option("--hours", type=click.FloatRange(min=0), help="The time from now on. Default: the brokers' setting.")
@with_admin()
async def renew(admin: Admin, token_id: str, hours: float | None) -> None:
    """Extend the lifetime of the token TOKEN_ID."""
    token = await _find(admin, token_id)
    ends_ms = await admin.renew_token(token.secret, -1 if hours is None else round(hours * HOUR_MS))
    click.echo(f"token {token_id} is valid until {_time(ends_ms)}")


@command.command(epilog=examples("anabranch tokens expire tokenid", "anabranch tokens expire tokenid --hours 1"))
@click.argument("token_id")
@click.option("--hours", type=click.FloatRange(min=0), help="The time from now on. Default: expire immediately.")
@with_admin()
async def expire(admin: Admin, token_id: str, hours: float | None) -> None:
    """Expire the token TOKEN_ID, later or at once."""
    token = await _find(admin, token_id)
    ends_ms = await admin.expire_token(token.secret, -1 if hours is None else round(hours * HOUR_MS))
    click.echo(f"token {token_id} has ended" if hours is None else f"token {token_id} ends at {_time(ends_ms)}")


async def _find(admin: Admin, token_id: str) -> DelegationToken:
    for token in await admin.describe_tokens():
        if token.token_id == token_id:
            return token
    raise click.ClickException(
        f"there is no token {token_id}, or you may not see it; `anabranch tokens list` shows yours"
    )


def _time(at_ms: int) -> str:
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).isoformat(timespec="seconds")
