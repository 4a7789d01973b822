"""The settings of the brokers of a cluster in one process: from its arguments, then with the ports that were bound.

Brokers listen on consecutive ports, or on those that the system chooses at their first start; they keep them later.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.broker_settings import BrokerSettings, ConfigError
from anabranch.broker.config.coordinator_properties import INTERNAL_REPLICATION
from anabranch.broker.config.effective_config import with_properties
from anabranch.broker.node.start_settings import check_reachable, refuse_twice, start_settings, warn_of_open_doors
from anabranch.broker.profiles.profile_choice import oldest, versions_of
from anabranch.cluster.broker_ports import at_ports, mapped_listeners
from anabranch.protocol.host_port import format_host_port

if TYPE_CHECKING:
    from typing import Self

OPTIONS: Final[Mapping[str, str]] = {
    "listeners": "--listener, or --host and --port",
    "advertised.listeners": "--advertise",
    "broker.rack": "--racks",
    "log.dir": "--data-dir",
    "log.dirs": "--data-dir",
}
"""Properties that differ between the brokers of one process; options of the command set them."""
OFFSETS_PARTITIONS: Final = 8
"""Partitions of each internal topic: enough for a small cluster; Kafka's default is 50."""


class ClusterSettings:
    """The settings of each broker, by its id.

    Args:
        given: The settings before the first start, in which a port may be 0.
    """

    def __init__(self, given: Mapping[int, BrokerSettings]) -> None:
        self._given = dict(given)
        self._current = dict(given)

    @classmethod
    def of(
        cls,
        brokers: int,
        *,
        host: str,
        advertised_host: str,
        advertised_port: int,
        port: int,
        listeners: Sequence[str],
        data_dir: str | Path | None,
        properties: Mapping[str, str],
        racks: Sequence[str],
        kafka: str | Mapping[int, str],
    ) -> Self:
        """Return those of a cluster's arguments (`Cluster`). Raises ConfigError."""
        if not isinstance(brokers, int) or isinstance(brokers, bool) or brokers < 1:
            raise ConfigError(f"brokers must be a number of at least 1, not {brokers!r}")
        refuse_twice(properties, OPTIONS)
        named = {"listeners": ",".join(listeners)} if listeners else {}
        if advertised_port:
            if listeners or not advertised_host:
                raise ConfigError("an advertised port needs an advertised host, and excludes listeners")
            named = mapped_listeners(host, port, advertised_host, advertised_port)
        defaults = dataclasses.replace(
            _small_cluster(brokers),
            host=host,
            port=port,
            advertised_host=advertised_host,
            internal_topics_limited_to_live_brokers=INTERNAL_REPLICATION.isdisjoint(properties),
        )
        settings = start_settings(defaults, {**properties, **named})
        check_reachable(settings)
        warn_of_open_doors(settings)
        first = settings.node_id
        versions = versions_of(kafka, range(first, first + brokers), settings.kafka_version)
        given = {
            node_id: dataclasses.replace(
                at_ports(settings, node_id - first),
                node_id=node_id,
                rack=rack,
                kafka_version=versions[node_id],
                kafka_release=oldest(versions.values()),
                data_dir=str(Path(data_dir) / f"broker-{node_id}") if data_dir else "",
            )
            for node_id, rack in zip(range(first, first + brokers), itertools.cycle(racks), strict=False)
        }
        return cls(given)

    def __getitem__(self, node_id: int) -> BrokerSettings:
        return self._current[node_id]

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The ids of all brokers."""
        return tuple(self._current)

    @property
    def first(self) -> BrokerSettings:
        """The settings of the first broker; the others' differ in ports, racks and directories."""
        return next(iter(self._current.values()))

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers at their first listener, as "HOST:PORT,HOST:PORT"."""
        return ",".join(format_host_port(*self.address(node_id)) for node_id in self._current)

    def bootstrap_servers_of(self, listener: str) -> str:
        """The addresses of all brokers at one listener. KeyError if there is no such listener."""
        addresses = [
            format_host_port(one.reachable_host, one.reachable_port(one.port))
            for settings in self._current.values()
            for one in settings.listening
            if one.name == listener
        ]
        if not addresses:
            raise KeyError(listener)
        return ",".join(addresses)

    def address(self, node_id: int) -> tuple[str, int]:
        """The advertised host and port of a broker. KeyError if no broker has this id."""
        first = self._current[node_id].first_listener
        return first.reachable_host, first.reachable_port(first.port)

    def change(self, node_id: int, properties: Mapping[str, str]) -> None:
        """Change properties of a broker from its next start on. Raises ConfigError or KeyError."""
        self._current[node_id] = with_properties(self._current[node_id], properties)

    def bind(self, node_id: int, ports: Mapping[str, int]) -> None:
        """Keep the ports on which a broker listens, by listener: a restarted broker has them, as clients expect."""
        self._current[node_id] = self._current[node_id].bound(ports)

    def reset(self) -> None:
        """Return to the given settings, with the ports that the brokers have."""
        self._current = {
            node_id: self._given[node_id].bound({one.name: one.port for one in settings.listening})
            for node_id, settings in self._current.items()
        }

    def elsewhere(self) -> ClusterSettings:
        """Return the given settings of all brokers on free ports, which are also the advertised ones."""
        return ClusterSettings({node_id: _on_free_ports(settings) for node_id, settings in self._given.items()})


def _on_free_ports(settings: BrokerSettings) -> BrokerSettings:
    bound = settings.bound({one.name: 0 for one in settings.listening})
    listeners = tuple(dataclasses.replace(one, advertised_port=0) for one in bound.listeners)
    return dataclasses.replace(bound, listeners=listeners, advertised_port=0)


def _small_cluster(brokers: int) -> BrokerSettings:
    """Return default properties for a few brokers on one machine: full replication, no initial rebalance delay."""
    return BrokerSettings(
        default_replication_factor=min(3, brokers),
        offsets_topic_replication_factor=min(3, brokers),
        offsets_topic_num_partitions=OFFSETS_PARTITIONS,
        transaction_state_log_replication_factor=min(3, brokers),
        transaction_state_log_min_isr=min(2, brokers),
        share_coordinator_state_topic_num_partitions=OFFSETS_PARTITIONS,
        share_coordinator_state_topic_replication_factor=min(3, brokers),
        share_coordinator_state_topic_min_isr=min(2, brokers),
        transaction_state_log_num_partitions=OFFSETS_PARTITIONS,
        group_initial_rebalance_delay_ms=0,
        controlled_shutdown_retry_backoff_ms=500,
    )
