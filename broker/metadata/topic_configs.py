"""The effective configurations of topics: /config/topics/T over the broker's current settings.

`get` never waits: before a topic is loaded it returns the broker's defaults. A caller that needs the topic's own
configuration (LeaderAndIsr, before it opens a log) awaits `load` first. If that fails because the session ends, the
caller may continue with the defaults: the configuration is read under the next session. Listeners are called when a
topic's effective configuration changes, through the topic's properties or the broker's, and when it is read late.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.broker_settings import BrokerSettings, TopicConfig
from anabranch.broker.config.config_changes import read_config
from anabranch.broker.config.effective_config import topic_config
from anabranch.controller.candidacy import retry_connection_loss
from anabranch.controller.zk.session import ZkError
from anabranch.protocol.errors import KafkaError

if TYPE_CHECKING:
    from anabranch.controller.zk.session import ZkSession

log: Final = logging.getLogger(__name__)
Listener = Callable[[str], None]


class TopicConfigs:
    """Cache of /config/topics."""

    def __init__(self, settings: BrokerSettings, session: Callable[[], ZkSession]) -> None:
        self._settings = settings
        self._session = session
        self._defaults = topic_config(settings, {})
        self._effective: dict[str, TopicConfig] = {}
        self._properties: dict[str, dict[str, str]] = {}
        self._unread: set[str] = set()
        """Topics whose configuration could not be read."""
        self._listeners: list[Listener] = []
        self._deletions = 0

    def on_change(self, listener: Listener) -> None:
        """Call `listener(topic)` whenever the effective configuration of a loaded topic changes."""
        self._listeners.append(listener)

    def get(self, topic: str) -> TopicConfig:
        """The effective configuration of a topic; the broker's defaults if it is not loaded."""
        return self._effective.get(topic, self._defaults)

    def properties(self, topic: str) -> dict[str, str]:
        """The properties that are set for the topic itself."""
        return self._properties.get(topic, {})

    async def load(self, topic: str, *, again: bool = False) -> TopicConfig:
        """Read a topic's configuration if it is not loaded, or if `again`. Raises ZkError."""
        if again or topic not in self._effective:
            deletions = -1
            while deletions != self._deletions:  # read again if the topic was deleted meanwhile
                deletions = self._deletions
                try:
                    self._properties[topic] = await read_config(self._session(), f"topics/{topic}")
                except ZkError:
                    if topic not in self._effective:
                        self._unread.add(topic)
                    raise
            self._settle(topic)
        return self._effective[topic]

    async def sync(self) -> None:
        """Let the next loads show what other nodes have written until now. Raises ZkError."""
        session = self._session()
        await retry_connection_loss(session.sync)

    async def reload_topic(self, topic: str) -> None:
        """Read the changed configuration of a topic, if it is loaded."""
        if topic in self._effective:
            await self.load(topic, again=True)

    async def reload(self) -> None:
        """Read all loaded configurations again, for changes between sessions, and those that could not be read."""
        for topic in [*self._effective, *self._unread]:
            await self.load(topic, again=True)

    def adopt(self, settings: BrokerSettings) -> None:
        """Apply changed broker settings to the values that topics inherit."""
        self._settings = settings
        self._defaults = topic_config(settings, {})
        for topic in list(self._effective):
            self._settle(topic)

    def forget(self, topic: str) -> None:
        """Remove a topic from the cache; the next `load` reads it again."""
        self._deletions += 1
        self._effective.pop(topic, None)
        self._properties.pop(topic, None)
        self._unread.discard(topic)

    def forget_all(self, topics: Iterable[str]) -> None:
        """Remove deleted topics from the cache, before topics of the same names are created."""
        for topic in topics:
            self.forget(topic)

    def _settle(self, topic: str) -> None:
        before = self._defaults if topic in self._unread else self._effective.get(topic)
        self._unread.discard(topic)
        try:
            after = topic_config(self._settings, self._properties[topic])
        except KafkaError:
            after = self._valid_part(topic)
        self._effective[topic] = after
        if before is not None and after != before:
            for listener in self._listeners:
                listener(topic)

    def _valid_part(self, topic: str) -> TopicConfig:
        """Return the configuration without what is invalid, or contradicts what precedes it or the broker's defaults.

        Another writer may validate less, and the broker's defaults may have changed. The other properties stay in
        force: a compacted topic must not become one whose records expire.
        """
        config, kept = self._defaults, dict[str, str]()
        for name, text in sorted(self._properties[topic].items()):
            try:
                config = topic_config(self._settings, {**kept, name: text})
            except KafkaError as error:
                log.error("ignoring %s of topic %s: %s", name, topic, error)
            else:
                kept[name] = text
        return config
