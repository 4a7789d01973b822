"""The clients' settings: Kafka's property names in snake case, with Kafka's defaults.

Settings are frozen; an invalid one raises a `ValueError` with the setting, the value and the valid values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from anabranch.clients.backoff import Backoff
from anabranch.protocol.host_port import ADVICE, parse_host_port

if TYPE_CHECKING:
    from anabranch.clients.security import Security

COMPRESSION_TYPES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONERS: Final = ("linear", "modulo")
INT32_MAX: Final = 2**31 - 1
_IN_REQUESTS: Final = frozenset({"request_timeout_ms", "transaction_timeout_ms"})
"""The settings of a producer that its requests carry, as numbers of 32 bits."""
IN_FLIGHT_REQUESTS_MAX: Final = 5
"""Leaders remember a producer's last five batches: with more in flight a duplicate could go unnoticed."""


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """The network settings of every client."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "anabranch"
    request_timeout_ms: int = 30000
    connect_timeout_ms: int = 10000
    bootstrap_timeout_ms: int = 30000
    """How long to try bootstrap servers."""
    metadata_max_age_ms: int = 300000
    security: Security | None = None
    """TLS and login; None: neither."""
    retry_backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        """Raise ValueError for times in which no request could be answered, or that leave no time between two."""
        for name in ("request_timeout_ms", "metadata_max_age_ms"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """The settings of a producer."""

    acks: int = -1
    enable_idempotence: bool = True
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60000
    """After this time the coordinator aborts an open transaction."""
    linger_ms: float = 5
    batch_bytes: int = 16384
    buffer_bytes: int = 32 * 1024 * 1024
    request_bytes_max: int = 1048576
    compression_type: str = "none"
    partitioner: str = "linear"
    audit: bool = False
    refuse_below_min_insync_replicas: bool = False
    """Refuse records for a partition whose leader would refuse them for lack of in-sync replicas (acks=all only)."""
    request_timeout_ms: int = 30000
    delivery_timeout_ms: int = 120000
    max_block_ms: int = 60000
    """How long `send` waits for metadata or for space in the buffer."""

    @property
    def in_flight_max(self) -> int:
        """Batches in flight per partition: without sequence numbers only one keeps their order."""
        return IN_FLIGHT_REQUESTS_MAX if self.enable_idempotence else 1

    @classmethod
    def make(
        cls,
        *,
        acks: int | str,
        enable_idempotence: bool | None,
        transactional_id: str | None = None,
        compression_type: str | None,
        partitioner: str,
        **rest: float,
    ) -> ProducerConfig:
        """Build settings from a user's values; raises `ValueError` with the invalid one."""
        count = parse_acks(acks)
        idempotent = count == -1 if enable_idempotence is None else enable_idempotence
        if idempotent and count != -1:
            raise ValueError(f'enable_idempotence needs acks="all", not acks={acks!r}')
        if transactional_id is not None and not (transactional_id and idempotent):
            raise ValueError('transactional_id must not be empty, and needs acks="all" and enable_idempotence')
        compression = compression_type or "none"
        if compression not in COMPRESSION_TYPES:
            raise ValueError(f"compression_type is one of {', '.join(COMPRESSION_TYPES)}, not {compression!r}")
        if partitioner not in PARTITIONERS:
            raise ValueError(f"partitioner is one of {', '.join(PARTITIONERS)}, not {partitioner!r}")
        for name, value in rest.items():
            if not value >= 0 or (
                value == 0 and name not in ("linger_ms", "audit", "refuse_below_min_insync_replicas", "max_block_ms")
            ):
                raise ValueError(f"{name} must be positive, not {value}")
            if name in _IN_REQUESTS:
                check_int32(name, value)
        config = cls(
            acks=count,
            enable_idempotence=idempotent,
            transactional_id=transactional_id,
            compression_type=compression,
            partitioner=partitioner,
            **rest,  # type: ignore[arg-type]
        )
        if config.linger_ms >= config.delivery_timeout_ms:
            limit_ms = config.delivery_timeout_ms
            raise ValueError(f"linger_ms must be below delivery_timeout_ms ({limit_ms}), or records expire unsent")
        return config


def check_int32(name: str, value: float) -> None:
    """Raise ValueError for a setting that no request can carry."""
    if not isinstance(value, int) or value > INT32_MAX:
        raise ValueError(f"{name} is a whole number up to {INT32_MAX}, not {value}")


def parse_acks(acks: int | str) -> int:
    """Parse acks (0, 1, -1 or "all") into -1, 0 or 1."""
    value = {"all": -1, "-1": -1, "0": 0, "1": 1, -1: -1, 0: 0, 1: 1}.get(acks)
    if value is None:
        raise ValueError(f'acks is 0, 1 or "all", not {acks!r}')
    return value


def parse_servers(servers: str | Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Parse addresses from "host:port,host:port" or a list of "host:port"; IPv6 hosts are in brackets."""
    parts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = tuple(_parse_server(part.strip()) for part in parts if part.strip())
    if not addresses:
        raise ValueError('bootstrap_servers is empty: write "127.0.0.1:9092"')
    return addresses


def _parse_server(text: str) -> tuple[str, int]:
    try:
        host, port = parse_host_port(text)
    except ValueError as error:
        raise ValueError(f'bootstrap server {text!r} is not of the form "host:port": {error}') from None
    if not host or not port:
        raise ValueError(f'bootstrap server {text!r} is not of the form "host:port": {ADVICE}')
    return host, port
