"""Describes and alters the log levels of this process, the resource BROKER_LOGGER (KIP-412).

Changes last until the process ends. Level names are Kafka's (`LogLevelConfig`), mapped to Python's nearest level. The
level of "root" can be set but not removed.
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
    """The effective level of each logger, by name."""
    names = [name for name, known in logging.root.manager.loggerDict.items() if isinstance(known, logging.Logger)]
    found = {ROOT: level_name(logging.root.getEffectiveLevel())}
    return found | {name: level_name(logging.getLogger(name).getEffectiveLevel()) for name in sorted(names)}


def level_name(level: int) -> str:
    """Kafka's name of the highest level that is not above a Python level."""
    return max((number, name) for name, number in LEVELS.items() if number <= max(level, LEVELS["TRACE"]))[1]


def check(operations: Iterable[Operation]) -> None:
    """Raise KafkaError for operations that loggers do not support."""
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
    """Set log levels, or remove them, so that the parent's level applies."""
    for one in operations:
        logger = logging.root if one.name == ROOT else logging.getLogger(one.name)
        logger.setLevel(logging.NOTSET if one.kind == DELETE else LEVELS[one.value or "INFO"])
