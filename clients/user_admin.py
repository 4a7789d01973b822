"""Manages SCRAM users for `Admin`: descriptions and passwords (KIP-554).

A password never leaves the process: brokers receive the result of many rounds of hashing with a salt.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from anabranch.clients.controller_calls import call_controller
from anabranch.clients.topic_admin import checked_names
from anabranch.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from anabranch.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from anabranch.protocol.errors import ErrorCode, raise_for_error

if TYPE_CHECKING:
    from anabranch.clients.network import Network

NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS: Final = 4096
SALT_BYTES: Final = 24


async def describe_users(network: Network, users: Sequence[str] | None) -> dict[str, dict[str, int]]:
    """Return user -> mechanism -> iterations, of these users or of all. Raises KafkaError."""
    requested = None if users is None else [UserName(name=name) for name in checked_names(users)]
    response: DescribeUserScramCredentialsResponse = await network.call_any(
        DescribeUserScramCredentialsRequest(users=requested)
    )
    raise_for_error(response.error_code, response.error_message)
    names = {number: name for name, number in NUMBERS.items()}
    found = {}
    for one in response.results:
        raise_for_error(one.error_code, one.error_message or one.user)
        found[one.user] = {names.get(info.mechanism, "?"): info.iterations for info in one.credential_infos}
    return found


async def set_password(
    network: Network, user: str, password: str, *, mechanisms: Sequence[str], iterations: int
) -> None:
    """Set a user's password for each of these mechanisms. Raises KafkaError, ValueError."""
    changes = []
    for mechanism in mechanisms:
        salt = secrets.token_bytes(SALT_BYTES)
        digest = DIGESTS[_check_mechanism(mechanism)]
        salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
        changes.append(
            ScramCredentialUpsertion(
                name=user, mechanism=NUMBERS[mechanism], iterations=iterations, salt=salt, salted_password=salted
            )
        )
    await _alter(network, AlterUserScramCredentialsRequest(deletions=[], upsertions=changes))


async def delete_user(network: Network, user: str, mechanisms: Sequence[str] | None) -> None:
    """Delete a user's credentials of these mechanisms, or of all. Raises KafkaError, ValueError."""
    if mechanisms is None:
        mechanisms = list((await describe_users(network, [user]))[user])
    gone = [ScramCredentialDeletion(name=user, mechanism=NUMBERS[_check_mechanism(one)]) for one in mechanisms]
    await _alter(network, AlterUserScramCredentialsRequest(deletions=gone, upsertions=[]))


def _check_mechanism(mechanism: str) -> str:
    if mechanism not in NUMBERS:
        raise ValueError(f"{mechanism!r} is not one of {', '.join(NUMBERS)}")
    return mechanism


def _first_error(response: AlterUserScramCredentialsResponse) -> int:
    codes: Mapping[str, int] = {one.user: one.error_code for one in response.results}
    return next((code for code in codes.values() if code), ErrorCode.NONE)


async def _alter(network: Network, request: AlterUserScramCredentialsRequest) -> None:
    lost_responses: list[None] = []
    response: AlterUserScramCredentialsResponse = await call_controller(
        network, request, _first_error, on_unknown_outcome=lambda: lost_responses.append(None)
    )
    for one in response.results:
        if not (lost_responses and one.error_code == ErrorCode.RESOURCE_NOT_FOUND):  # it is deleted
            raise_for_error(one.error_code, one.error_message or one.user)
