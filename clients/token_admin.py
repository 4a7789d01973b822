"""Manages delegation tokens for `Admin`: temporary credentials in place of a password (KIP-48, KIP-373)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from anabranch.protocol.apis.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from anabranch.protocol.apis.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from anabranch.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest
from anabranch.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest
from anabranch.protocol.errors import raise_for_error
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.clients.network import Network


@value
class DelegationToken:
    """A token. Principals are type and name: `User:alice`; times are milliseconds since the epoch."""

    token_id: str
    """The user name to log in with, by SCRAM with `sasl_delegation_token=True`."""
    secret: str = field(repr=False)
    """The password."""
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    """The end of the period in which it may be renewed."""


async def create_token(
    network: Network, owner: str | None, renewers: Sequence[str], max_lifetime_ms: int
) -> DelegationToken:
    """Create a token. Raises KafkaError, ValueError."""
    kind, name = (None, None) if owner is None else _halves(owner)
    response: CreateDelegationTokenResponse = await network.call_any(
        CreateDelegationTokenRequest(
            owner_principal_type=kind,
            owner_principal_name=name,
            renewers=[
                CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in map(_halves, renewers)
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
    )
    raise_for_error(response.error_code)
    owner = f"{response.principal_type}:{response.principal_name}"
    requester_name = response.token_requester_principal_name
    return DelegationToken(
        token_id=response.token_id,
        secret=base64.b64encode(response.hmac).decode(),
        owner=owner,
        requester=f"{response.token_requester_principal_type}:{requester_name}" if requester_name else owner,
        renewers=tuple(renewers),
        issued_ms=response.issue_timestamp_ms,
        expires_ms=response.expiry_timestamp_ms,
        max_ms=response.max_timestamp_ms,
    )


async def describe_tokens(network: Network, owners: Sequence[str] | None) -> list[DelegationToken]:
    """Return the visible tokens that these principals own, requested or may renew, or all.

    Raises KafkaError, ValueError.
    """
    requested = None
    if owners is not None:
        requested = [
            DescribeDelegationTokenOwner(principal_type=one, principal_name=two) for one, two in map(_halves, owners)
        ]
    response: DescribeDelegationTokenResponse = await network.call_any(DescribeDelegationTokenRequest(owners=requested))
    raise_for_error(response.error_code)
    return [
        DelegationToken(
            token_id=one.token_id,
            secret=base64.b64encode(one.hmac).decode(),
            owner=f"{one.principal_type}:{one.principal_name}",
            requester=f"{one.token_requester_principal_type}:{one.token_requester_principal_name}",
            renewers=tuple(f"{each.principal_type}:{each.principal_name}" for each in one.renewers),
            issued_ms=one.issue_timestamp,
            expires_ms=one.expiry_timestamp,
            max_ms=one.max_timestamp,
        )
        for one in response.tokens
    ]


async def renew_token(network: Network, secret: str, period_ms: int) -> int:
    """Extend a token's lifetime, and return its expiry time. Raises KafkaError."""
    hmac = base64.b64decode(secret)
    response = await network.call_any(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms))
    raise_for_error(response.error_code)
    return int(response.expiry_timestamp_ms)


async def expire_token(network: Network, secret: str, period_ms: int) -> int:
    """Expire a token, and return its expiry time. Raises KafkaError."""
    hmac = base64.b64decode(secret)
    response = await network.call_any(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms))
    raise_for_error(response.error_code)
    return int(response.expiry_timestamp_ms)


def _halves(principal: str) -> tuple[str, str]:
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"{principal!r} is not a principal: write User:{principal}")
    return kind, name
