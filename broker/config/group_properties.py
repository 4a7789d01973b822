"""The settings of single groups, of a Kafka 4: their names, what they may be, and what they mean beside the broker's.

What is not set for a group is what the broker's property of the same name with `group.` in front says; what is may not
leave the bounds that the broker sets. Pure. Source: Kafka's `GroupConfig` (KIP-848, KIP-932), 4.2.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.broker_properties import broker_properties
from anabranch.broker.config.property_declaration import ConfigError, ConfigKey, table
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings

_TABLE: Final = """
consumer.heartbeat.interval.ms | int | 5000 | 1.. |  | How often members whose broker assigns send heartbeats.
consumer.session.timeout.ms | int | 45000 | 1.. |  | After how much silence a member whose broker assigns is out.
share.auto.offset.reset | string | latest |  |  | Where a group that shares begins: latest, earliest, by_duration:PT1H.
share.heartbeat.interval.ms | int | 5000 | 1.. |  | How often members of a group that shares send heartbeats.
share.isolation.level | string | read_uncommitted | read_committed, read_uncommitted |  | Whether they get open records.
share.record.lock.duration.ms | int | 30000 | 1000.. |  | For how long a shared record is its member's.
share.session.timeout.ms | int | 45000 | 1.. |  | After how much silence a member of a group that shares is out.
streams.heartbeat.interval.ms | int | 5000 | 1.. |  | How often members of a group of Kafka Streams send heartbeats.
streams.initial.rebalance.delay.ms | int | 3000 | 0.. |  | How long the first members of such a group wait for others.
streams.num.standby.replicas | int | 0 | 0.. |  | How many copies of a state they keep beside the active one.
streams.session.timeout.ms | int | 45000 | 1.. |  | After how much silence a member of such a group is out.
"""
BOUNDED: Final = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "share.heartbeat.interval.ms",
    "share.record.lock.duration.ms",
    "share.session.timeout.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
)
STANDBYS: Final = "streams.num.standby.replicas"
RESET: Final = "share.auto.offset.reset"
ISOLATION: Final = "share.isolation.level"
LATEST: Final = "latest"
EARLIEST: Final = "earliest"
BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)


@functools.cache
def group_properties() -> Mapping[str, ConfigKey]:
    """Every property that a group may have, by name."""
    return table(_TABLE, lambda _: None)


def effective(settings: BrokerSettings, given: Mapping[str, str], name: str) -> int:
    """A number that a group goes by: its own, or the broker's."""
    if name in given:
        return int(given[name])
    number: int = getattr(settings, "group_" + name.replace(".", "_"))
    return number


def default_of(settings: BrokerSettings, key: ConfigKey) -> str | None:
    """What a group goes by for which nothing was set."""
    field = "group_" + key.name.replace(".", "_")
    return str(getattr(settings, field)) if hasattr(settings, field) else key.default


def check(settings: BrokerSettings, given: Mapping[str, str]) -> None:
    """Raise INVALID_CONFIG for what no group of this broker can be set to."""
    try:
        for name, text in given.items():
            key = group_properties().get(name)
            if key is None:
                raise ConfigError(f"Unknown group config name: {name}")
            key.parse(text)
            if name == RESET and text not in (LATEST, EARLIEST):
                duration_ms(text)
        for name in BOUNDED:
            if name in given:
                _check_bounds(settings, name, int(given[name]))
        if int(given.get(STANDBYS, 0)) > settings.group_streams_max_standby_replicas:
            bound = f"group.streams.max.standby.replicas={settings.group_streams_max_standby_replicas}"
            raise ConfigError(f"{STANDBYS}={given[STANDBYS]} must be at most {bound}")
        for kind in ("consumer", "share", "streams"):
            beat, session = (effective(settings, given, f"{kind}.{one}") for one in (HEARTBEAT, SESSION))
            if beat >= session:
                raise ConfigError(f"{kind}.{HEARTBEAT}={beat} must be less than {kind}.{SESSION}={session}")
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


HEARTBEAT: Final = "heartbeat.interval.ms"
SESSION: Final = "session.timeout.ms"


def _check_bounds(settings: BrokerSettings, name: str, number: int) -> None:
    kind, _, rest = name.partition(".")
    for word, wrong in (("min", int.__lt__), ("max", int.__gt__)):
        bound_name = f"group.{kind}.{word}.{rest}"
        bound = _bound(settings, bound_name)
        if wrong(number, bound):
            side = "at least" if word == "min" else "at most"
            raise ConfigError(f"{name}={number} must be {side} {bound_name}={bound}")


def _bound(settings: BrokerSettings, name: str) -> int:
    known = getattr(settings, name.replace(".", "_"), None)
    return int(known or settings.given.get(name) or broker_properties()[name].default or 0)


def duration_ms(text: str) -> int:
    """How long ago `by_duration:PT1H30M` is. Raises ConfigError."""
    found = _DURATION.fullmatch(text.removeprefix(BY_DURATION)) if text.startswith(BY_DURATION) else None
    if found is None or not any(found.groups()):
        raise ConfigError(f"{RESET}={text!r} must be latest, earliest or such as by_duration:P1DT2H30M")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
