"""The loggers of this process, as BROKER_LOGGER resources show and change them (KIP-412): levels live as long as it.

Level names are Kafka's (`LogLevelConfig`); what Python has no name for is the nearest that it has. The logger "root" is
above all others and can be set but not unset.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from anabranch.broker.administration.config_alterations import APPEND, DELETE, SUBTRACT, Operation
from anabranch.protocol.errors import ErrorCode, KafkaError

ROOT: Final = "root"
LEVELS: Final[Mapping[str, int]] = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def levels() -> dict[str, str]:
    """Every logger with its effective level."""
    names = [name for name, known in logging.root.manager.loggerDict.items() if isinstance(known, logging.Logger)]
    found = {ROOT: level_name(logging.root.getEffectiveLevel())}
    return found | {name: level_name(logging.getLogger(name).getEffectiveLevel()) for name in sorted(names)}


def level_name(level: int) -> str:
    """The name of the highest level that is not above this number."""
    return max((number, name) for name, number in LEVELS.items() if number <= max(level, LEVELS["TRACE"]))[1]


def check(operations: Iterable[Operation]) -> None:
    """Raise KafkaError for operations that are not possible for loggers."""
    known = levels()
    for one in operations:
        if one.kind in (APPEND, SUBTRACT):
            what = "APPEND" if one.kind == APPEND else "SUBTRACT"
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{what} operation is not allowed for the BROKER_LOGGER resource"
            )
        if one.kind == DELETE and one.name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")
        if one.name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {one.name} does not exist!")
        if one.kind != DELETE and one.value not in LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {one.name} to {one.value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(LEVELS)}",
            )


def apply(operations: Iterable[Operation]) -> None:
    """Set the levels of loggers, or unset them, so that the level of the logger above holds."""
    for one in operations:
        logger = logging.root if one.name == ROOT else logging.getLogger(one.name)
        logger.setLevel(logging.NOTSET if one.kind == DELETE else LEVELS[one.value or "INFO"])
