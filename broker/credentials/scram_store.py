"""Stores users' SCRAM credentials as Kafka does: in the user's configuration, under the mechanism's name.

Passwords are never stored. `broker.authentication.scram_server` checks logins with these credentials, and tools list
them. Sources: KIP-554, `ZkAdminManager`, `ScramCredentialUtils`, RFC 5802.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.config_changes import change_config, read_config
from anabranch.broker.quotas.quota_configs import desanitize, sanitize
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.controller.zk.session import NoNode
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.controller.zk.session import ZkSession

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
SALT_BYTES: Final = 24


@value
class Upsertion:
    """A credential to store."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


@value
class Deletion:
    """A credential to remove."""

    user: str
    mechanism: int


def credential(upsertion: Upsertion) -> str:
    """Return the stored format of a credential."""
    digest = "sha256" if upsertion.mechanism == 1 else "sha512"
    client_key = hmac.digest(upsertion.salted_password, b"Client Key", digest)
    server_key = hmac.digest(upsertion.salted_password, b"Server Key", digest)
    parts = {
        "salt": upsertion.salt,
        "stored_key": hashlib.new(digest, client_key).digest(),
        "server_key": server_key,
    }
    encoded = [f"{name}={base64.b64encode(raw).decode()}" for name, raw in parts.items()]
    return ",".join([*encoded, f"iterations={upsertion.iterations}"])


def iterations_in(stored: str) -> int:
    """Return the iterations of a stored credential. Raises ValueError or KeyError if it is malformed."""
    return int(dict(part.split("=", 1) for part in stored.split(","))["iterations"])


def refusals(upsertions: Iterable[Upsertion], deletions: Iterable[Deletion]) -> dict[str, KafkaError]:
    """Return user -> error for changes that are always invalid; one invalid change refuses all changes of its user."""
    refused: dict[str, KafkaError] = {}
    pairs = Counter[tuple[str, int]]()
    changes: list[Upsertion | Deletion] = [*deletions, *upsertions]
    for one in changes:
        pairs[one.user, one.mechanism] += 1
        problem = _problem(one)
        if problem is not None:
            refused[one.user] = problem
    for (user, _), times in pairs.items():
        if times > 1 and user not in refused:
            message = "A user credential cannot be altered twice in the same request"
            refused[user] = KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
    return refused


def _problem(one: Upsertion | Deletion) -> KafkaError | None:
    if one.user == "":
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if one.mechanism not in MECHANISMS:
        return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(one, Upsertion) and one.iterations < ITERATIONS_MIN:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if isinstance(one, Upsertion) and one.iterations > ITERATIONS_MAX:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return None


async def alter(
    session: ZkSession, upsertions: list[Upsertion], deletions: list[Deletion]
) -> dict[str, KafkaError | None]:
    """Apply the valid changes. Returns user -> None, or the error."""
    outcome: dict[str, KafkaError | None] = dict(refusals(upsertions, deletions))
    changes: dict[str, dict[str, str | None]] = {}
    turns = YieldBudget()
    alterations: list[Upsertion | Deletion] = [*deletions, *upsertions]
    for one in alterations:
        await turns.spend()
        if one.user not in outcome:
            text = credential(one) if isinstance(one, Upsertion) else None
            changes.setdefault(one.user, {})[MECHANISMS[one.mechanism]] = text
    for user, texts in changes.items():
        await turns.spend()
        try:
            await _alter_user(session, user, texts)
        except KafkaError as error:
            outcome[user] = error
        else:
            outcome[user] = None
    return outcome


async def _alter_user(session: ZkSession, user: str, texts: Mapping[str, str | None]) -> None:
    def edit(before: Mapping[str, str]) -> dict[str, str]:
        if any(text is None and name not in before for name, text in texts.items()):
            message = "Attempt to delete a user credential that does not exist"
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)
        merged: dict[str, str | None] = {**before, **texts}
        return {name: text for name, text in merged.items() if text is not None}

    await change_config(session, f"users/{sanitize(user)}", edit)


async def create_missing(session: ZkSession, user: str, mechanism_name: str, password: str) -> None:
    """Store a user's credential, unless the user has one for this mechanism."""
    mechanism = next(number for number, name in MECHANISMS.items() if name == mechanism_name)
    salt = secrets.token_bytes(SALT_BYTES)
    digest = "sha256" if mechanism == 1 else "sha512"
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, ITERATIONS_MIN)
    text = credential(Upsertion(user, mechanism, ITERATIONS_MIN, salt, salted))
    await change_config(session, f"users/{sanitize(user)}", lambda before: {mechanism_name: text, **before})


async def users(session: ZkSession) -> list[str]:
    """Return the users that have a configuration, sorted."""
    try:
        nodes = await session.children("/config/users")
    except NoNode:
        return []
    return sorted(name for node in nodes if (name := desanitize(node)) is not None)


async def credentials_of(session: ZkSession, user: str) -> dict[int, int]:
    """Return mechanism -> iterations of a user's credentials; without malformed ones, which no login can use."""
    config = await read_config(session, f"users/{sanitize(user)}")
    found = {}
    for one, name in MECHANISMS.items():
        if name in config:
            with contextlib.suppress(ValueError, KeyError):
                found[one] = iterations_in(config[name])
    return found
