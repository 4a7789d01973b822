"""Delegation tokens (KIP-48, KIP-373): any broker creates, renews and expires them; all brokers watch for changes.

A token's secret is the HMAC of its id under a key that all brokers share; it is not stored. A client logs in by SCRAM
with the id as user name and the secret as password, and becomes the token's owner. One conditional transaction writes a
change and its announcement; it fails if the token has changed meanwhile. The active controller removes expired tokens.
Sources: `DelegationTokenManager`, `DelegationTokenManagerZk`, `DelegationTokenCache`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import hmac
import logging
import secrets
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.config_changes import ChangeNotifications
from anabranch.broker.config.config_def import Scope, config_def
from anabranch.broker.tasks.supervised_task import supervised_task
from anabranch.controller.candidacy import retry_connection_loss
from anabranch.controller.zk import token_znodes
from anabranch.controller.zk.body import MalformedZnode
from anabranch.controller.zk.session import BadVersion, Create, Delete, NodeExists, NoNode, Set, ZkError
from anabranch.controller.zk.token_znodes import CHANGE, CHANGES, TOKENS, Token
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.tasks.supervised_task import OnFailure
    from anabranch.controller.zk.session import ZkSession

log: Final = logging.getLogger(__name__)
ID_BYTES: Final = 16
KEYS: Final = ("delegation.token.secret.key", "delegation.token.master.key")
Change = Callable[[Token], "Token | None"]


def tokens_of(settings: BrokerSettings, clock_ms: Callable[[], int]) -> Tokens | None:
    """Create the token manager from a node's settings; None if no key is set."""
    key = next((text for name in KEYS if (text := settings.given.get(name, ""))), "")
    if not key:
        return None

    def number(name: str) -> int:
        known = config_def(Scope.BROKER).keys_by_name()[f"delegation.token.{name}"]
        return int(known.normal(settings.given.get(known.name, known.default or "")))

    return Tokens(
        key,
        clock_ms,
        lifetime_max_ms=number("max.lifetime.ms"),
        renewal_ms=number("expiry.time.ms"),
        sweep_s=number("expiry.check.interval.ms") / 1000,
    )


class Tokens:
    """Manages a cluster's delegation tokens, with a cache of all tokens."""

    def __init__(
        self, key: str, clock_ms: Callable[[], int], *, lifetime_max_ms: int, renewal_ms: int, sweep_s: float
    ) -> None:
        self._key = key.encode()
        self._clock_ms = clock_ms
        self._lifetime_max_ms = lifetime_max_ms
        self._renewal_ms = renewal_ms
        self._sweep_s = sweep_s
        self._known: dict[str, Token] = {}
        self._session: ZkSession | None = None
        self._turn = asyncio.Lock()
        self._watch = ChangeNotifications("change of tokens", CHANGE, self._on_change, "token-changes")
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def all(self) -> Iterable[Token]:
        """All cached tokens."""
        return self._known.values()

    def hmac_of(self, token_id: str) -> bytes:
        """Return a token's secret."""
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def find(self, token_id: str) -> Token | None:
        """Return a token by id, or None."""
        return self._known.get(token_id)

    # --- watching

    async def watch(self, session: ZkSession, is_controller: Callable[[], bool], died: OnFailure) -> None:
        """Under a new session, set the watch, then read all tokens."""
        await self.stop()
        self._session = session
        for path in (TOKENS, CHANGES):
            with contextlib.suppress(NodeExists):
                await retry_connection_loss(lambda path=path: session.create(path, make_parents=True))  # type: ignore[misc]
        self._watch.on_failure = died
        await self._watch.watch(session)
        names = await retry_connection_loss(lambda: session.children(TOKENS))
        for token_id in {*names, *self._known}:
            await self._read_again(token_id)
        self._sweeping = supervised_task(self._sweep(is_controller), "token-expiry", died)

    async def stop(self) -> None:
        """Stop the watch and the expiry task."""
        await self._watch.stop()
        if self._sweeping is not None:
            self._sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeping
            self._sweeping = None

    async def _on_change(self, _: str, data: bytes) -> None:
        await self._read_again(data.decode(errors="replace"))

    async def _read_again(self, token_id: str) -> None:
        async with self._turn:
            try:
                token, _ = await self._read(token_id)
            except (KafkaError, MalformedZnode) as error:
                if isinstance(error, MalformedZnode):
                    log.error("ignoring a malformed delegation token: %s", error)
                self._known.pop(token_id, None)
            else:
                self._known[token_id] = token

    async def _read(self, token_id: str) -> tuple[Token, int]:
        """Read a token and its znode's version. Raises DELEGATION_TOKEN_NOT_FOUND."""
        session, path = self._session, token_znodes.path_of(token_id)
        assert session is not None, "tokens are read with a session"
        try:
            data, stat = await retry_connection_loss(lambda: session.get(path))
        except (NoNode, ValueError):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "Delegation Token is not found") from None
        return token_znodes.decode(path, data), stat.version

    async def _sweep(self, is_controller: Callable[[], bool]) -> None:
        while True:
            await asyncio.sleep(self._sweep_s)
            if not is_controller():
                continue
            for token in [one for one in self._known.values() if one.expires_ms < self._clock_ms()]:
                with contextlib.suppress(KafkaError, ZkError):
                    await self._change(token.token_id, lambda one: one if one.expires_ms >= self._clock_ms() else None)

    # --- changing

    async def create(self, owner: str, requester: str, renewers: tuple[str, ...], max_lifetime_ms: int) -> Token:
        """Create a token. Its lifetime is the maximum if the requested one is not positive or exceeds it."""
        session, now_ms = self._session, self._clock_ms()
        assert session is not None, "tokens are created with a session"
        longest = self._lifetime_max_ms
        max_ms = now_ms + (longest if max_lifetime_ms <= 0 else min(max_lifetime_ms, longest))
        token = Token(
            token_id=new_id(),
            owner=owner,
            requester=requester,
            renewers=renewers,
            issued_ms=now_ms,
            expires_ms=min(max_ms, now_ms + self._renewal_ms),
            max_ms=max_ms,
        )
        announcement = Create(CHANGE, token.token_id.encode(), sequence=True)
        with contextlib.suppress(NodeExists):  # an earlier attempt succeeded: ids are unique
            written = Create(token_znodes.path_of(token.token_id), token_znodes.encode(token))
            await retry_connection_loss(lambda: session.multi([written, announcement]))
        await self._read_again(token.token_id)
        return token

    async def renew(self, secret: bytes, caller: str, period_ms: int) -> int:
        """Renew a token: it expires this long from now, within its maximum lifetime. Returns the expiry in ms.

        Raises KafkaError: DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED.
        """
        now_ms = self._clock_ms()
        longer_ms = self._renewal_ms if period_ms < 0 else period_ms

        def renew_expiry(token: Token) -> Token:
            _check_alive(token, now_ms)
            return dataclasses.replace(token, expires_ms=min(token.max_ms, now_ms + longer_ms))

        changed = await self._change(self._find_owned(secret, caller).token_id, renew_expiry)
        assert changed is not None, "a renewed token exists"
        return changed.expires_ms

    async def expire(self, secret: bytes, caller: str, period_ms: int) -> int:
        """Set a token's expiry to this many ms from now; delete it if negative. Returns the expiry.

        Raises as `renew`.
        """
        now_ms, token = self._clock_ms(), self._find_owned(secret, caller)
        if period_ms < 0:
            await self._change(token.token_id, lambda _: None)
            return now_ms

        def shorten_expiry(token: Token) -> Token:
            _check_alive(token, now_ms)
            return dataclasses.replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))

        changed = await self._change(token.token_id, shorten_expiry)
        assert changed is not None, "a token with a later expiry exists"
        return changed.expires_ms

    def _find_owned(self, secret: bytes, caller: str) -> Token:
        """Return the token with this secret if the caller may change it. Raises KafkaError."""
        for token in self._known.values():
            if hmac.compare_digest(self.hmac_of(token.token_id), secret):
                if caller not in (token.owner, *token.renewers):
                    raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "neither its owner nor a renewer")
                return token
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "Delegation Token is not found")

    async def _change(self, token_id: str, change: Change) -> Token | None:
        """Replace a token with the result of `change`; None deletes it. Raises what `change` raises."""
        session, path = self._session, token_znodes.path_of(token_id)
        assert session is not None, "tokens are changed with a session"
        announcement = Create(CHANGE, token_id.encode(), sequence=True)
        while True:
            token, version = await self._read(token_id)
            after = change(token)
            if after == token:
                return token
            write = Delete(path, version) if after is None else Set(path, token_znodes.encode(after), version)
            try:
                await retry_connection_loss(lambda: session.multi([write, announcement]))  # noqa: B023 -- awaited here
            except BadVersion:
                continue
            except NoNode:
                pass
            await self._read_again(token_id)
            return after


def new_id() -> str:
    """Draw a unique id without a leading dash, which commands would parse as an option (Kafka's `Uuid`)."""
    while True:
        drawn = base64.urlsafe_b64encode(secrets.token_bytes(ID_BYTES)).rstrip(b"=").decode()
        if not drawn.startswith("-"):
            return drawn


def _check_alive(token: Token, now_ms: int) -> None:
    if now_ms > token.max_ms or now_ms > token.expires_ms:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "Delegation Token is expired")
