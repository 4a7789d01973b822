"""Keeps one node's configuration equal to ZooKeeper's: its own settings, and those of topics, groups, quotas and users.

Under each new session the node watches first and then reads everything, because changes between sessions send no
notification. Afterwards each change notification reloads the configuration that it names. A key store is read again
even if its properties are equal: the file may have changed. A key store that cannot be read leaves the previous one in
use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.broker_settings import ConfigError
from anabranch.broker.config.config_changes import DEFAULT_ENTITY, read_config
from anabranch.broker.config.listeners import KEY_STORE, PREFIX
from anabranch.broker.credentials import scram_store
from anabranch.broker.telemetry.client_metrics_configs import FOLDER

if TYPE_CHECKING:
    from anabranch.broker.authentication.listener_security import ListenerSecurity
    from anabranch.broker.authentication.scram_credential_cache import ScramCredentials
    from anabranch.broker.dispatch.services import Services
    from anabranch.broker.network.server import Server
    from anabranch.broker.quotas.client_quotas import ClientQuotas
    from anabranch.broker.quotas.quota_configs import QuotaWatch
    from anabranch.controller.zk.session import ZkSession

log: Final = logging.getLogger(__name__)


class NodeConfigs:
    """The configuration of one node that changes while it runs."""

    def __init__(
        self,
        services: Services,
        server: Server,
        protections: Mapping[str, ListenerSecurity],
        credentials: ScramCredentials | None,
        *,
        apply_settings: Callable[[], None],
        give_up: Callable[[Exception], None],
    ) -> None:
        """`apply_settings` hands changed settings to the node's parts; `give_up` ends the node."""
        self._services = services
        self._server = server
        self._protections = protections
        self._credentials = credentials
        self._apply_settings = apply_settings
        self._give_up = give_up
        self._quota_watch: QuotaWatch | None = None
        services.dynamic.trials.append(self._try_key_stores)
        services.config_changes.on_change("brokers", self._broker_config_changed)
        services.config_changes.on_change("users", self._user_changed)
        if services.throttling is not None:
            self._watch_quotas(services.throttling.quotas)
        if services.broker is not None and services.has_group_configs:
            services.config_changes.on_change("groups", services.broker.group_configs.reload_group)
        if services.broker is not None and services.has_client_metrics:
            services.config_changes.on_change(FOLDER, services.broker.client_metrics.reload_subscription)

    def _watch_quotas(self, quotas: ClientQuotas) -> None:
        from anabranch.broker.quotas.quota_configs import QuotaWatch

        services, server = self._services, self._server
        self._quota_watch = QuotaWatch(quotas, lambda: server.connection_quotas, lambda: services.session)
        for entity_type in ("clients", "ips"):
            services.config_changes.on_change(entity_type, self._quota_watch.load)

    async def load(self, session: ZkSession) -> None:
        """Watch all configurations under a new session, then read them."""
        services = self._services
        if services.acls is not None:
            await services.acls.watch(session)
        await services.config_changes.watch(session)
        changed = services.dynamic.update(
            default=await read_config(session, f"brokers/{DEFAULT_ENTITY}"),
            own=await read_config(session, f"brokers/{services.settings.node_id}"),
        )
        if changed:
            self._apply_settings()
        self._apply_to_listeners()
        await services.topic_configs.reload()
        if services.broker is not None and services.has_group_configs:
            await services.broker.group_configs.load()
        if services.broker is not None and services.has_client_metrics:
            await services.broker.client_metrics.load()
        if self._quota_watch is not None:
            await self._quota_watch.load()
        if self._credentials is not None:
            await self._credentials.load(session)
            await self._create_own_user(session, self._credentials)
        if services.tokens is not None:
            await services.tokens.watch(session, self._is_controller, self._give_up)
        await services.features.watch(session)

    async def _create_own_user(self, session: ZkSession, credentials: ScramCredentials) -> None:
        """Store the user by which brokers log in to each other, unless it exists: nobody could create it through them.

        Kafka has its tools do this before the first start (`kafka-storage.sh format --add-scram`).
        """
        own = self._services.settings.security
        if own is None or own.by_token or not own.mechanism.startswith("SCRAM"):
            return
        if credentials.of(own.mechanism, own.user) is None:
            await scram_store.create_missing(session, own.user, own.mechanism, own.password)
            await credentials.read(session, own.user)
            log.info("created user %r, by which brokers log in to each other with %s", own.user, own.mechanism)

    async def stop(self) -> None:
        """Stop all watches."""
        services = self._services
        await services.config_changes.stop()
        if services.acls is not None:
            await services.acls.stop()
        if services.tokens is not None:
            await services.tokens.stop()
        await services.features.stop()

    def _is_controller(self) -> bool:
        controller = self._services.controller
        return controller is not None and controller.active

    async def _user_changed(self, name: str) -> None:
        """Reload a changed user's quotas and SCRAM credentials."""
        if self._quota_watch is not None:
            await self._quota_watch.load()
        if self._credentials is not None:
            await self._credentials.on_change(self._services.session, name)

    async def _broker_config_changed(self, name: str) -> None:
        """Apply a changed configuration, if it is this broker's or the default of all brokers."""
        services = self._services
        if name not in (DEFAULT_ENTITY, str(services.settings.node_id)):
            return
        layer = "default" if name == DEFAULT_ENTITY else "own"
        if services.dynamic.update(**{layer: await read_config(services.session, f"brokers/{name}")}):
            self._apply_settings()
        self._apply_to_listeners()

    def _apply_to_listeners(self) -> None:
        """Apply the properties of single listeners."""
        dynamic = self._services.dynamic
        self._server.set_listener_limits({**dynamic.static.given, **dynamic.default, **dynamic.own})
        self._reload_key_stores()

    def _reload_key_stores(self) -> None:
        """Reload the key stores that this broker's dynamic configuration names, even if their properties are equal."""

        settings = self._services.settings

        def reload(protection: ListenerSecurity, given: Mapping[str, str]) -> None:
            listener = protection.listener.name
            try:
                protection.reload(given, settings.security if listener == settings.inter_broker_listener else None)
            except ConfigError as error:  # the file has changed since the change was tried
                log.error("listener %s keeps its previous certificate: %s", listener, error)
            else:
                log.info("listener %s reloaded its key store", listener)

        self._with_key_stores(self._services.dynamic.own, reload)

    def _try_key_stores(self, own: Mapping[str, str]) -> None:
        """Raise ConfigError for unreadable key stores."""
        self._with_key_stores(own, lambda protection, given: protection.check(given))

    def _with_key_stores(
        self, own: Mapping[str, str], act: Callable[[ListenerSecurity, Mapping[str, str]], None]
    ) -> None:
        """Call `act(security, all its properties)` for each TLS listener whose key store is among these properties."""
        for listener, protection in self._protections.items():
            prefix = f"{PREFIX}{listener.lower()}.{KEY_STORE}"
            if protection.tls is not None and any(name.startswith(prefix) for name in own):
                act(protection, {**self._services.dynamic.static.given, **own})
