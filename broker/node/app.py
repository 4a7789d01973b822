"""One node, from start to stop: session, listener, replicas, coordinators, registration, controller candidacy.

Start: ZooKeeper session, listener, replicas, registration, candidacy. The listener starts before the registration,
because the controller connects to registered brokers. With authentication or ACLs, new connections wait at the listener
until users and ACLs are loaded: a refused client would give up.
Controlled stop: ask the controller to move the leaderships, end the candidacy and the session, then close the logs and
the listener.

When the ZooKeeper session expires, the registration and the candidacy end. The node registers with a new broker epoch
and becomes a candidate again under a new session (`session_renewal`). Its listener, logs and client connections stay
open.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.broker_settings import BrokerSettings, ConfigError
from anabranch.broker.config.effective_config import with_profile_defaults
from anabranch.broker.coordinators.runtime.failpoints import crashing_at
from anabranch.broker.dispatch.dispatcher import Dispatcher
from anabranch.broker.dispatch.services import Services
from anabranch.broker.membership import registration
from anabranch.broker.membership.cluster_membership import ClusterMembership
from anabranch.broker.metadata.features import at_first
from anabranch.broker.metadata.metadata_cache import ClusterImage
from anabranch.broker.network.server import Server
from anabranch.broker.node.assembly import assemble
from anabranch.broker.node.controlled_shutdown import move_leaderships_away
from anabranch.broker.node.meta_properties import claim_directories
from anabranch.broker.node.node_clock import NodeClock
from anabranch.broker.node.node_configs import NodeConfigs
from anabranch.broker.node.session_renewal import SessionRenewal
from anabranch.broker.profiles.profile import profile_for

if TYPE_CHECKING:
    from anabranch.broker.authentication.listener_security import ListenerSecurity
    from anabranch.broker.authentication.scram_credential_cache import ScramCredentials
    from anabranch.broker.authorization.peer import Peer
    from anabranch.broker.credentials.delegation_tokens import Tokens
    from anabranch.broker.node.session_renewal import Connect
    from anabranch.broker.storage.files import Files
    from anabranch.controller.controller import Controller
    from anabranch.controller.runner import ControllerEvent
    from anabranch.controller.settings import ControllerSettings
    from anabranch.controller.zk.session import ZkSession

log: Final = logging.getLogger(__name__)

STEP_S: Final = 5.0
CONTROLLED_SHUTDOWN_S: Final = 15.0


class Node:
    """A broker, a controller candidate, or both."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        connect: Connect,
        files: Files | Mapping[str, Files],
        rng: random.Random,
        clock_ms: Callable[[], int],
        failpoint: Callable[[str], None] | None = None,
        in_turn: Callable[[], bool] | None = None,
    ) -> None:
        """`failpoint` is called at each step of controller and coordinators, in place of `crash_at`.

        `in_turn`: see `Controller`.
        """
        self.settings = with_profile_defaults(settings)
        self.services: Services
        self.server: Server
        self._files = files
        self._rng = rng
        self.clock = NodeClock(clock_ms)
        self._clock_ms = self.clock.now_ms
        self._failpoint = failpoint
        self._in_turn = in_turn
        self._on_controller_event: list[Callable[[ControllerEvent], None]] = []
        self._on_joined: list[Callable[[ZkSession], Awaitable[None]]] = []
        self._attachment: ClusterMembership
        self._configs: NodeConfigs
        self._credentials: ScramCredentials | None = None
        self._tokens: Tokens | None = None
        self._protections: Mapping[str, ListenerSecurity] = {}
        self._renewal = SessionRenewal(
            settings.node_id,
            connect,
            join=lambda session: self._join(session),
            leave=self._leave,
            on_expired=self._session_expired,
            give_up=self._give_up,
        )
        self.failed: asyncio.Future[None]
        """Set to an exception when the node cannot continue; the node's owner awaits it."""

    @property
    def port(self) -> int:
        """The port of the node's first listener."""
        return self.server.port

    @property
    def session(self) -> ZkSession:
        """The live ZooKeeper session."""
        return self.services.session

    @property
    def controller(self) -> Controller | None:
        """This node's controller candidate; None without the controller role."""
        return self.services.controller

    def on_controller_event(self, listener: Callable[[ControllerEvent], None]) -> None:
        """Call `listener(event)` for each event of this node's controller while it is active."""
        self._on_controller_event.append(listener)

    def on_joined(self, listener: Callable[[ZkSession], Awaitable[None]]) -> None:
        """Await `listener(session)` each time the node has joined the cluster under a new ZooKeeper session."""
        self._on_joined.append(listener)

    async def start(self) -> None:
        """Start the node, and return once it is registered; the controller may not have sent its state yet.

        Waits without limit for a ZooKeeper that does not respond. Raises `NoServerListens` if no process listens at
        ZooKeeper's address, and `DirectoryInUse`, before any other effect, if a data directory is locked.
        """
        self.failed = asyncio.get_running_loop().create_future()
        with contextlib.ExitStack() as undo:
            self._lock_directories(undo)
            await self._start()
            undo.pop_all()

    async def _start(self) -> None:
        session, cluster_id = await self._renewal.find_cluster(self._fresh_cluster_id)
        try:
            if self.settings.is_broker:
                claim_directories(self.files_by_path, self.settings.node_id, cluster_id)
            protections = self._protections = self._protect()
            for protection in protections.values():
                await protection.start(self._give_up)
            self.services = self._assemble(session, cluster_id)
            requires_login = bool(protections) or self.services.authorizer is not None
            self.server = Server(self.settings, Dispatcher(self.services), protections, is_open=not requires_login)
            self.server.on_gone = self._connection_gone
            self._configs = NodeConfigs(
                self.services,
                self.server,
                protections,
                self._credentials,
                apply_settings=self._apply_settings,
                give_up=self._give_up,
            )
            await self.server.start()
        except BaseException:
            await session.close()
            raise
        try:
            if self.settings.is_broker:
                await self.services.replicas.start()
            await self._renewal.join(session)
        except BaseException:
            await self._stop(controlled=False)  # stop the listener and the tasks that have started
            raise

    async def stop(self, *, controlled: bool = True) -> None:
        """Leave the cluster and stop the node. Without `controlled`, leaderships move only after the session ends.

        Each step that needs other processes has a timeout, because ZooKeeper may not respond.
        """
        try:
            await self._stop(controlled=controlled)
        finally:
            for files in self.files_by_path.values():
                files.unlock()

    async def _stop(self, *, controlled: bool) -> None:
        services = self.services
        self._renewal.stop()
        if controlled and self.settings.is_broker and self.settings.controlled_shutdown_enable:
            moved = move_leaderships_away(self.settings, services.controller_link, services.fence.broker_epoch)
            await self._give_time_to(moved, "controlled shutdown", CONTROLLED_SHUTDOWN_S)
        if services.controller is not None:
            await self._give_time_to(services.controller.stop(), "controller resignation")
        for protection in self._protections.values():
            await protection.stop()
        await self._configs.stop()
        await self._give_time_to(services.session.close(), "closing the ZooKeeper session")
        await services.controller_link.close()
        if services.broker is not None:
            for part in (services.broker.groups, services.broker.transactions, services.broker.shares):
                if part.built is not None:
                    await part.built.stop()
            await services.replicas.stop()
        await self.server.stop(drain_s=0.5 if controlled else 0)

    def _connection_gone(self, peer: Peer) -> None:
        """Discard the share sessions and the telemetry state of a closed connection."""
        broker = self.services.broker
        if broker is not None and broker.shares.built is not None:
            broker.shares.built.connection_gone((peer.host, peer.port))
        if broker is not None and broker.telemetry is not None:
            broker.telemetry.gone((peer.host, peer.port))

    async def _give_time_to(self, step: Awaitable[None], what: str, seconds: float | None = None) -> None:
        seconds = STEP_S if seconds is None else seconds
        try:
            async with asyncio.timeout(seconds):
                await step
        except TimeoutError:
            log.warning("node %d: %s timed out after %g s", self.settings.node_id, what, seconds)

    async def ready(self, timeout_ms: float | None) -> bool:
        """Wait until the metadata cache holds this broker and all topics; return False after the timeout."""

        def has_all_topics(image: ClusterImage) -> bool:
            return image.complete and self.settings.node_id in image.brokers

        return await self.services.metadata.wait_until(has_all_topics, timeout_ms)

    # --- starting

    def _assemble(self, session: ZkSession, cluster_id: str) -> Services:
        self._attachment = ClusterMembership(session)
        services = assemble(
            self.settings,
            self._attachment,
            files=self._files,
            cluster_id=cluster_id,
            rng=self._rng,
            clock_ms=self._clock_ms,
            steady_ms=self.clock.steady_ms,
            failpoint=self._failpoint or crashing_at(self.settings.crash_at),
            died=self._give_up,
            tokens=self._tokens,
        )
        services.features.too_old = self._too_old
        return services

    def _protect(self) -> Mapping[str, ListenerSecurity]:
        """Create the security of each listener, and set the credentials for other nodes. Raises ConfigError."""
        if not any(one.tls or one.sasl for one in self.settings.listening):
            return {}
        from anabranch.broker.authentication.listener_security import inter_broker_security, listener_securities
        from anabranch.broker.authentication.scram_credential_cache import ScramCredentials
        from anabranch.broker.credentials.delegation_tokens import tokens_of

        self._tokens = tokens_of(self.settings, self._clock_ms)
        self._credentials = ScramCredentials()
        found = listener_securities(self.settings, self._credentials, self._clock_ms, self._tokens)
        self.settings = dataclasses.replace(self.settings, security=inter_broker_security(self.settings))
        return found

    async def _join(self, session: ZkSession) -> None:
        """Register, and become a controller candidate, under this session. Raises `SessionExpired`."""
        services = self.services
        self._attachment.session = session
        await self._configs.load(session)
        self.server.open()
        if self.settings.is_broker:
            settings = self.settings.bound(self.server.ports)
            services.fence.register(await registration.register(session, settings, self._clock_ms()))
            log.info("broker %d registered with epoch %d", self.settings.node_id, services.fence.broker_epoch)
        if self.settings.is_controller:
            self._attachment.controller = self._candidate(session)
            await self._attachment.controller.start()
        for listener in self._on_joined:
            await listener(session)

    def _candidate(self, session: ZkSession) -> Controller:
        from anabranch.controller.controller import Controller

        return Controller(
            session,
            self._controller_settings(),
            rng=self._rng,
            listener=self._controller_announces,
            failpoint=self._failpoint,
            in_turn=self._in_turn,
        )

    def _controller_announces(self, event: ControllerEvent) -> None:
        for listener in self._on_controller_event:
            listener(event)

    def _controller_settings(self) -> ControllerSettings:
        from anabranch.controller.settings import ControllerSettings

        settings = self.services.settings
        between = self.settings.bound(self.server.ports).between_brokers
        return ControllerSettings(
            node_id=settings.node_id,
            host=between.reachable_host,
            port=between.reachable_port(between.port),
            inter_broker_listener=between.name,
            security=settings.security,
            request_timeout_ms=settings.request_timeout_ms,
            unclean_leader_election_enable=settings.unclean_leader_election_enable,
            min_insync_replicas=settings.min_insync_replicas,
            log_cleanup_policy=settings.log_cleanup_policy,
            delete_topic_enable=settings.delete_topic_enable,
            auto_leader_rebalance_enable=settings.auto_leader_rebalance_enable,
            first_features=at_first(profile_for(settings.kafka_release or settings.kafka_version)),
            crash_at=settings.crash_at,
        )

    def _too_old(self, features: list[str]) -> None:
        names = ", ".join(features)
        self._give_up(
            ConfigError(f"this node does not support finalized features of its cluster: {names}; upgrade the node")
        )

    def _give_up(self, reason: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(reason)

    def _apply_settings(self) -> None:
        services = self.services
        settings = services.settings
        services.topic_configs.adopt(settings)
        self.server.add_connection(settings)
        if self.settings.is_broker:
            services.replicas.adopt(settings)
        if services.controller is not None:
            services.controller.adopt(self._controller_settings())

    @property
    def files_by_path(self) -> Mapping[str, Files]:
        """The files of each data directory, by its path."""
        return self._files if isinstance(self._files, Mapping) else {self.settings.data_dir: self._files}

    def _lock_directories(self, undo: contextlib.ExitStack) -> None:
        """Lock the data directories against other processes, before any file in them is read."""
        for files in self.files_by_path.values():
            files.lock()
            undo.callback(files.unlock)

    def _fresh_cluster_id(self) -> str:
        return base64.urlsafe_b64encode(self._rng.randbytes(16)).rstrip(b"=").decode()

    def _session_expired(self) -> None:
        """Coordinate no group until the controller confirms the leaderships under the next session."""
        broker = self.services.broker
        if broker is not None and broker.groups.built is not None:
            broker.groups.built.step_down()

    async def _leave(self, session: ZkSession) -> None:
        """Stop the controller candidate of an ended session, and close the session to free its sockets."""
        if self.services.controller is not None:
            await self.services.controller.stop()
        await session.close()
