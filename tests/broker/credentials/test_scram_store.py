"""SCRAM credentials: stored as in Kafka, checked with RFC 7677's example, described without secrets."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest

from anabranch.broker.config.config_changes import change_config, read_config
from anabranch.broker.credentials.scram_store import Upsertion, credential, credentials_of, iterations_in
from anabranch.clients.connection import Connection
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from anabranch.protocol.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from anabranch.protocol.errors import ErrorCode
from tests.broker.serving import serving

SHA_256, SHA_512 = 1, 2


def test_the_credential_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    stored = credential(Upsertion("user", SHA_256, 4096, salt, salted))
    assert iterations_in(stored) == 4096
    parts = dict(part.split("=", 1) for part in stored.split(","))
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    server_key, stored_key = (base64.b64decode(parts[name]) for name in ("server_key", "stored_key"))
    signature = base64.b64encode(hmac.digest(server_key, message, "sha256"))
    assert signature == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_signature = hmac.digest(stored_key, message, "sha256")
    client_key = bytes(one ^ other for one, other in zip(proof, client_signature, strict=True))
    assert hashlib.sha256(client_key).digest() == stored_key


async def test_malformed_credential_does_not_hide_the_others() -> None:
    session = await MemoryZooKeeper().connect()
    good = credential(Upsertion("user", SHA_256, 4096, b"salt", b"salted"))
    for bad in ("", "salt=1", "iterations=many"):
        await change_config(session, "users/user", lambda _, bad=bad: {"SCRAM-SHA-256": good, "SCRAM-SHA-512": bad})  # type: ignore[misc]
        assert await credentials_of(session, "user") == {SHA_256: 4096}


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"salted"
    )


async def alter(connection: Connection, *changes: Any) -> dict[str, ErrorCode]:
    request = AlterUserScramCredentialsRequest(
        upsertions=[one for one in changes if isinstance(one, ScramCredentialUpsertion)],
        deletions=[one for one in changes if isinstance(one, ScramCredentialDeletion)],
    )
    return {row.user: ErrorCode(row.error_code) for row in (await connection.call(request)).results}


async def describe(connection: Connection, *names: str) -> dict[str, Any]:
    users = [UserName(name=name) for name in names] or None
    response = await connection.call(DescribeUserScramCredentialsRequest(users=users))
    return {
        row.user: ErrorCode(row.error_code)
        if row.error_code
        else {one.mechanism: one.iterations for one in row.credential_infos}
        for row in response.results
    }


async def test_credentials_are_stored_described_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def is_controller(_: object) -> None: ...

    monkeypatch.setattr(
        "anabranch.broker.handlers.alter_user_scram_credentials.refuse_unless_controller", is_controller
    )
    async with serving() as server:
        connection = await Connection.open("127.0.0.1", server.port, client_id="test")
        fine = ErrorCode.NONE
        assert await alter(connection, upsertion("ü"), upsertion("ü", SHA_512, 8192), upsertion("b")) == {
            "ü": fine,
            "b": fine,
        }
        assert await describe(connection) == {"b": {1: 4096}, "ü": {1: 4096, 2: 8192}}
        session = server.dispatcher._services.session
        assert (await read_config(session, "users/%C3%BC")).keys() == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
        assert await alter(
            connection,
            ScramCredentialDeletion(name="ü", mechanism=1),
            ScramCredentialDeletion(name="b", mechanism=2),
        ) == {"ü": fine, "b": ErrorCode.RESOURCE_NOT_FOUND}
        assert await describe(connection, "ü", "nobody", "", "b", "b") == {
            "ü": {2: 8192},
            "nobody": ErrorCode.RESOURCE_NOT_FOUND,
            "": ErrorCode.RESOURCE_NOT_FOUND,
            "b": ErrorCode.DUPLICATE_RESOURCE,
        }
        assert await alter(
            connection,
            upsertion(""),
            upsertion("mechanism", 9),
            upsertion("few", iterations=4095),
            upsertion("many", iterations=16385),
            upsertion("twice"),
            ScramCredentialDeletion(name="twice", mechanism=1),
        ) == {
            "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "mechanism": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "twice": ErrorCode.DUPLICATE_RESOURCE,
        }
        assert (await describe(connection)).keys() == {"b", "ü"}, "nothing of that was stored"
        await connection.close()


async def test_credential_change_at_another_broker_is_not_controller() -> None:
    async with serving() as server:
        connection = await Connection.open("127.0.0.1", server.port, client_id="test")
        assert await alter(connection, upsertion("a"), upsertion("b")) == dict.fromkeys("ab", ErrorCode.NOT_CONTROLLER)
        await connection.close()
