"""The effective configuration of topics, read from /config/topics/T when a topic is first met.

`get` never waits: before a topic was loaded it answers with the broker's defaults, so whoever needs the truth
(LeaderAndIsr before it opens a log) awaits `load` first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.config import BrokerSettings, TopicConfig, topic_config
from controller.zk import paths, znodes
from controller.zk.session import NoNode
from protocol.errors import KafkaError

if TYPE_CHECKING:
    from controller.zk.session import ZkSession


class TopicConfigs:
    """Cache of /config/topics."""

    def __init__(self, settings: BrokerSettings, session: Callable[[], ZkSession]) -> None:
        self._settings = settings
        self._session = session
        self._defaults = topic_config(settings, {})
        self._effective: dict[str, TopicConfig] = {}
        self._properties: dict[str, dict[str, str]] = {}

    def get(self, topic: str) -> TopicConfig:
        """What applies to a topic, as far as known."""
        return self._effective.get(topic, self._defaults)

    def properties(self, topic: str) -> dict[str, str]:
        """What was set for the topic itself."""
        return self._properties.get(topic, {})

    async def load(self, topic: str, *, again: bool = False) -> TopicConfig:
        """Read a topic's configuration, unless it is known already."""
        if again or topic not in self._effective:
            properties = await self._read(topic)
            try:
                self._effective[topic] = topic_config(self._settings, properties)
            except KafkaError:
                # Written by something that validates less than we do: the defaults are the safe reading.
                self._effective[topic] = self._defaults
            self._properties[topic] = properties
        return self._effective[topic]

    def forget(self, topic: str) -> None:
        """The topic is gone, or may have changed: read again on next use."""
        self._effective.pop(topic, None)
        self._properties.pop(topic, None)

    async def _read(self, topic: str) -> dict[str, str]:
        try:
            path = paths.topic_config(topic)
            data, _ = await self._session().get(path)
        except NoNode:
            return {}
        return znodes.decode_config(path, data)
