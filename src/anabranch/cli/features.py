"""`anabranch features`: shows the features that brokers must support, and finalizes them after an upgrade (KIP-584)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from anabranch.cli.command_group import CommandGroup
from anabranch.cli.examples import examples
from anabranch.cli.remote import as_json, bootstrap, run, tell, with_admin
from anabranch.clients.controller_calls import call_controller
from anabranch.protocol.errors import raise_for_error

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin

UPGRADE, SAFE_DOWNGRADE = 1, 2


@click.group(
    cls=CommandGroup,
    name="features",
    epilog="""\b
Examples:
  anabranch features describe
  anabranch features upgrade reshard.version        allow ordered resizes
  anabranch features downgrade reshard.version      only while no topic has been resized
""",
)
def command() -> None:
    """Finalized features: brokers without them cannot join."""


@command.command(
    epilog=examples("anabranch features describe"),
)
@as_json
@with_admin()
async def describe(admin: Admin, as_json: bool) -> None:
    """Show supported and finalized features.

    Supported by the broker that answers, finalized for the cluster.
    """
    from anabranch.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse

    request = ApiVersionsRequest(client_software_name="anabranch", client_software_version="1")
    answer: ApiVersionsResponse = await admin.network.retry(lambda: admin.network.call_any(request))
    finalized = {one.name: one.max_version_level for one in answer.finalized_features}
    for one in answer.supported_features:
        level = finalized.get(one.name, 0)
        row = {"name": one.name, "min": one.min_version, "max": one.max_version, "finalized": level or None}
        state = f"finalized at {level}" if level else "not finalized"
        tell(as_json, row, [f"{one.name:<20} supported {one.min_version} to {one.max_version}, {state}"])


@command.command(
    epilog=examples("anabranch features upgrade reshard.version        allow ordered resizes"),
)
@click.argument("name")
@click.option("--level", default=1, show_default=True, type=click.IntRange(1), help="Every broker must support it.")
@bootstrap
def upgrade(name: str, level: int, bootstrap: str) -> None:
    """Finalize a level.

    Refused, with their ids, while some brokers do not support it.
    """
    run(bootstrap, lambda admin: update(admin, name, level, UPGRADE))


@command.command(
    epilog=examples("anabranch features downgrade reshard.version      only while no topic has been resized"),
)
@click.argument("name")
@bootstrap
def downgrade(name: str, bootstrap: str) -> None:
    """Withdraw a feature.

    Refused once something depends on it.
    """
    run(bootstrap, lambda admin: update(admin, name, 0, SAFE_DOWNGRADE))


async def update(admin: Admin, name: str, level: int, kind: int) -> None:
    """Send the update to the controller, and print the outcome."""
    from anabranch.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

    row = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    request = UpdateFeaturesRequest(feature_updates=[row])
    response: UpdateFeaturesResponse = await call_controller(admin.network, request, lambda answer: answer.error_code)
    for code, message in [
        (response.error_code, response.error_message),
        *((one.error_code, one.error_message) for one in response.results),
    ]:
        raise_for_error(code, message or name)
    click.echo(f"{name} is {f'finalized at level {level}' if level else 'not finalized any more'}")
