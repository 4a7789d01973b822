"""The kazoo adapter of the port `ZkSession`: one session, its requests, its watches and its chroot.

A session ends once. After expiry kazoo would continue with a new session under the same client object; this adapter
stops the connection thread at the moment of expiry, so that no request of the old session can run in a new one.

Only kazoo's `*_async` calls are used: a blocking one would block its own event loop. `stop` joins the connection thread
and so runs in an executor. `kazoo_client` documents the threads, and `kazoo_values` translates what goes in and out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

from kazoo.hosts import collect_hosts
from kazoo.protocol.states import KazooState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import ACL, OPEN_ACL_UNSAFE

from anabranch.controller.zk import paths
from anabranch.controller.zk import session as zk
from anabranch.controller.zk.access import SASL, Access, Login, access_to
from anabranch.controller.zk.connect_string import parse_connect_string
from anabranch.controller.zk.kazoo_client import LoopHandler, OneSessionClient, kazoo_log
from anabranch.controller.zk.kazoo_values import (
    ACLS,
    WATCH_KINDS,
    login_arguments,
    raise_first_failure,
    stat_of,
    translate,
)
from anabranch.controller.zk.multi_read import NO_AUTH, NO_NODE, MultiRead
from anabranch.controller.zk.session import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Op,
    SessionCallback,
    SessionEvent,
    SessionExpired,
    Set,
    Stat,
    WatchCallback,
    WatchEvent,
    ZkError,
    ZkSession,
)
from anabranch.controller.zk.sizes import check_multi, check_write
from anabranch.protocol.host_port import format_host_port

log = logging.getLogger(__name__)

PROBE_S: Final = 1.0
MULTI_READS_LOST_MAX: Final = 2
"""So many consecutive multiReads without a response mean that the server does not support them."""


async def open_kazoo(
    hosts: str,
    *,
    session_timeout_ms: int = 18000,
    chroot: str = "",
    connect_timeout_ms: int | None = None,
    login: Login | None = None,
    secured: bool = False,
) -> ZkSession:
    """Open a session with an ensemble, "host:port,host:port" with an optional "/chroot" at the end, created if missing.

    `secured`: its new znodes belong to the login (`access`). Raises ConnectionLoss if no server answers within the
    connect timeout (by default the session timeout), LoginRefused if the server refuses the login.
    """
    addresses, path = parse_connect_string(hosts)
    root = "/".join(["", *[name for name in f"{path}/{chroot}".split("/") if name]])
    servers = ",".join(format_host_port(*address) for address in addresses)
    session = KazooSession(servers, session_timeout_ms, root, login, secured=secured)
    await session.open((connect_timeout_ms or session_timeout_ms) / 1000)
    return session


@dataclass(frozen=True, slots=True)
class Watcher:
    """A watch callback for kazoo. Equal for equal callbacks, so that one registered twice on a path fires once."""

    session: KazooSession
    callback: WatchCallback

    def __call__(self, event: WatchedEvent) -> None:
        """Pass the event on as the port's."""
        self.session.deliver(self.callback, event)

    def __hash__(self) -> int:
        return hash(self.callback)


class KazooSession(ZkSession):
    """One session with a real server (see `ZkSession`)."""

    def __init__(
        self, servers: str, timeout_ms: int, root: str, login: Login | None = None, *, secured: bool = False
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._servers = servers
        self._root = root
        self._listeners: list[SessionCallback] = []
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._id = 0
        self._over: SessionEvent | None = None
        self._multi_reads_lost = 0
        self._login = login
        self._secured = secured
        self._client = OneSessionClient(
            hosts=servers,
            timeout=timeout_ms / 1000,
            handler=LoopHandler(self._loop),
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0),
            logger=kazoo_log,
            **login_arguments(login),
        )
        self._client.add_listener(self._on_state)

    def __repr__(self) -> str:
        return f"<ZooKeeper session 0x{self._id & (1 << 64) - 1:x} at {self._servers}{self._root}>"

    @property
    def session_id(self) -> int:
        """The `ephemeral_owner` of this session's ephemerals."""
        return self._id

    @property
    def credentials(self) -> tuple[int, bytes]:
        """Session id and password, with which any client can take the session over, or close it."""
        session_id, password = self._client.client_id
        return session_id, password

    async def open(self, timeout_s: float) -> None:
        """Wait for the first connection and create the chroot."""
        self._client.start_async()
        try:
            async with asyncio.timeout(timeout_s):
                await self._opened
                if self._login is not None:
                    await self._log_in()
                if self._root:
                    await self._create_root()
                if self._secured:
                    await self._warn_of_open_znodes()
        except TimeoutError:
            await self.close()
            text = f"no ZooKeeper answered at {self._servers} within {timeout_s:g} s"
            if self._opened.done() and self._login is not None and self._login.scheme == SASL:
                text += ": a server without SASL users does not respond to a SASL login"
            raise (zk.ConnectionLoss if await self._a_server_listens() else zk.NoServerListens)(text) from None
        except BaseException:
            await self.close()
            raise

    async def _a_server_listens(self) -> bool:
        """Whether any server accepts connections: a stalled one does, through its operating system."""
        for host, port in collect_hosts(self._servers)[0]:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(PROBE_S):
                    _, writer = await asyncio.open_connection(host, port)
                writer.close()
                return True
        return False

    async def _log_in(self) -> None:
        """Wait for the login. A server closes the connection of an unknown user."""
        assert self._login is not None
        try:
            await self._ask("", self._client.exists_async, "/")
        except (zk.LoginRefused, SessionExpired):
            who = f"no user {self._login.user} with this password at {self._servers}"
            raise zk.LoginRefused(who) from None

    async def _create_root(self) -> None:
        if await self._ask(self._root, self._client.exists_async, self._root) is not None:
            return  # whoever owns it
        acl = ACLS[Access.READABLE if self._secured else Access.OPEN]
        with contextlib.suppress(zk.NodeExists):
            await self._ask(self._root, self._client.create_async, self._root, b"", acl=acl, makepath=True)

    async def _warn_of_open_znodes(self) -> None:
        """Warn if this cluster was created without owners: its existing znodes stay open to everybody."""
        with contextlib.suppress(zk.NoNode, zk.NoAuth):
            acl, _ = await self._ask("", self._client.get_acls_async, self._full_path(paths.BROKER_IDS))
            if acl == OPEN_ACL_UNSAFE:
                log.warning(
                    "znodes from before zookeeper.set.acl=true remain writable for all clients of ZooKeeper: "
                    "%s is one of them",
                    self._full_path(paths.BROKER_IDS),
                )

    # ---------------------------------------------------------------------------------------------- requests

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        """See ZkSession."""
        data, stat = await self._ask(path, self._client.get_async, self._full_path(path), self._watcher(watch))
        return data or b"", stat_of(stat)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Read many znodes: one by one if the server, older than 3.6, closes the connection on a multiRead."""
        if not paths:
            return []
        if self._multi_reads_lost >= MULTI_READS_LOST_MAX:
            return list(await asyncio.gather(*(self._get_if_there(path) for path in paths)))
        try:
            found = await self._ask("", self._multi_read_async, [self._full_path(path) for path in paths])
        except zk.ConnectionLoss:
            self._multi_reads_lost += 1
            raise
        except zk.Unimplemented:  # its response before the close sometimes arrives
            self._multi_reads_lost = MULTI_READS_LOST_MAX
            return await self.get_many(paths)
        self._multi_reads_lost = 0
        known: list[tuple[bytes, Stat] | None] = []
        for path, one in zip(paths, found, strict=True):
            if isinstance(one, int) and one != NO_NODE:
                raise zk.NoAuth(path) if one == NO_AUTH else ZkError(f"{path} (error {one})")
            known.append(None if isinstance(one, int) else one)
        return known

    def _multi_read_async(self, paths: Sequence[str]) -> Any:
        answer = self._client.handler.async_result()
        self._client._call(MultiRead(paths), answer)
        return answer

    async def _get_if_there(self, path: str) -> tuple[bytes, Stat] | None:
        with contextlib.suppress(zk.NoNode):
            return await self.get(path)
        return None

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        """See ZkSession."""
        names = await self._ask(path, self._client.get_children_async, self._full_path(path), self._watcher(watch))
        return sorted(names)

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        """See ZkSession."""
        stat = await self._ask(path, self._client.exists_async, self._full_path(path), self._watcher(watch))
        return None if stat is None else stat_of(stat)

    async def sync(self) -> None:
        """See ZkSession."""
        await self._ask("", self._client.sync_async, self._full_path("/"))

    async def create_with_stat(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> tuple[str, Stat]:
        """See ZkSession."""
        check_write(Create(path, data), self._root, secured=self._secured)
        how = {"ephemeral": ephemeral, "sequence": sequence}
        if make_parents:
            with contextlib.suppress(zk.NoNode):
                return await self._create(path, data, **how)
            for parent in reversed(_parents_of(path)):
                with contextlib.suppress(zk.NodeExists):
                    await self._create(parent, b"")
        return await self._create(path, data, **how)

    async def _create(self, path: str, data: bytes, **how: bool) -> tuple[str, Stat]:
        ask = self._client.create_async
        created, stat = await self._ask(
            path, ask, self._full_path(path), data, acl=self._acl(path), include_data=True, **how
        )
        return self._visible_path(created), stat_of(stat)

    def _acl(self, path: str) -> list[ACL]:
        return ACLS[access_to(path, secured=self._secured)]

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """See ZkSession."""
        check_write(Set(path, data), self._root)
        return stat_of(await self._ask(path, self._client.set_async, self._full_path(path), data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See ZkSession."""
        await self._ask(path, self._client.delete_async, self._full_path(path), version)

    async def multi(self, ops: Sequence[Op]) -> list[str | Stat | None]:
        """See ZkSession."""
        check_multi(ops, self._root, secured=self._secured)
        request = self._client.transaction()
        for op in ops:
            match op:
                case Create():
                    acl = self._acl(op.path)
                    request.create(self._full_path(op.path), op.data, acl, op.ephemeral, op.sequence)
                case Set():
                    request.set_data(self._full_path(op.path), op.data, op.version)
                case Delete():
                    request.delete(self._full_path(op.path), op.version)
                case Check():
                    request.check(self._full_path(op.path), op.version)
                case _:
                    assert_never(op)
        answers = await self._ask("", request.commit_async)
        raise_first_failure(ops, answers)
        return [self._answer(answer) for answer in answers]

    def _answer(self, answer: object) -> str | Stat | None:
        if isinstance(answer, ZnodeStat):
            return stat_of(answer)
        return self._visible_path(answer) if isinstance(answer, str) else None

    async def _ask(self, path: str, call: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        """Make one asynchronous call. Completions run on the loop; their waiter may have been cancelled."""
        if self._over is not None:
            raise SessionExpired(path)
        future: asyncio.Future[Any] = self._loop.create_future()

        def settle(result: Any) -> None:
            if future.done():
                return
            if result.successful():
                future.set_result(result.value)
            else:
                future.set_exception(translate(result.exception, path))

        call(*args, **kwargs).rawlink(settle)
        return await future

    # ---------------------------------------------------------------------------------------------- events

    def on_session(self, callback: SessionCallback) -> None:
        """See ZkSession."""
        self._listeners.append(callback)

    def _on_state(self, state: str) -> None:
        """Post state changes; runs on the connection thread, and handles only expiry there."""
        if state == KazooState.LOST:
            self._client.end_reconnecting()
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._on_change, state, self._client.client_id)

    def _on_change(self, state: str, credentials: tuple[int, bytes] | None) -> None:
        if self._over is not None:
            return
        if state == KazooState.SUSPENDED:
            self._notify(SessionEvent.SUSPENDED)
        elif state == KazooState.LOST:
            self._over = SessionEvent.EXPIRED
            self._notify(SessionEvent.EXPIRED)
        elif self._opened.done():
            self._notify(SessionEvent.CONNECTED)
        elif credentials is not None:
            self._id = credentials[0]
            self._opened.set_result(None)

    def _notify(self, event: SessionEvent) -> None:
        log.info("%r: %s", self, event.value)
        for callback in self._listeners:
            callback(event)

    def deliver(self, callback: WatchCallback, event: WatchedEvent) -> None:
        """Pass a watch's event to its callback, unless the session was closed."""
        if self._over is not SessionEvent.CLOSED:
            path = None if event.path is None else self._visible_path(event.path)
            callback(WatchEvent(path, WATCH_KINDS[event.type]))

    def _watcher(self, callback: WatchCallback | None) -> Watcher | None:
        return None if callback is None else Watcher(self, callback)

    async def close(self) -> None:
        """See ZkSession."""
        if self._over is SessionEvent.CLOSED:
            return
        expired, self._over = self._over is not None, SessionEvent.CLOSED
        await self._loop.run_in_executor(None, self._stop)
        if not expired:
            self._notify(SessionEvent.CLOSED)

    def _stop(self) -> None:
        """Stop the client; runs in an executor, because it joins the connection thread."""
        self._client.stop()
        self._client.close()

    # ---------------------------------------------------------------------------------------------- chroot

    def _full_path(self, path: str) -> str:
        return self._root if path == "/" and self._root else self._root + path

    def _visible_path(self, path: str) -> str:
        return path.removeprefix(self._root) or "/"


def _parents_of(path: str) -> list[str]:
    return [] if (above := paths.parent(path)) == "/" else [above, *_parents_of(above)]
