"""Log levels as BROKER_LOGGER resources (KIP-412)."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from anabranch.broker.administration import loggers
from anabranch.broker.administration.config_alterations import APPEND, DELETE, SET, Operation
from anabranch.protocol.errors import ErrorCode, KafkaError

NAME = "tests.broker.loggers.one"


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    one = logging.getLogger(NAME)
    yield one
    one.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("level", "name"),
    [(0, "TRACE"), (5, "TRACE"), (9, "TRACE"), (10, "DEBUG"), (25, "INFO"), (30, "WARN"), (50, "FATAL"), (99, "FATAL")],
)
def test_numeric_level_maps_to_the_highest_log4j_level_not_above_it(level: int, name: str) -> None:
    assert loggers.level_name(level) == name


def test_deleting_a_logger_level_restores_the_parent_level() -> None:
    above = loggers.levels()[NAME]
    loggers.apply([Operation(NAME, SET, "TRACE")])
    assert loggers.levels()[NAME] == "TRACE" != above
    loggers.apply([Operation(NAME, DELETE, None)])
    assert loggers.levels()[NAME] == above


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (Operation(NAME, APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (Operation(loggers.ROOT, DELETE, None), ErrorCode.INVALID_REQUEST),
        (Operation("no.such.logger", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (Operation(NAME, SET, "LOUD"), ErrorCode.INVALID_CONFIG),
    ],
    ids=["append", "no level above all", "no such logger", "no such level"],
)
def test_invalid_logger_operation_is_refused(operation: Operation, code: ErrorCode) -> None:
    loggers.check([Operation(NAME, SET, "INFO"), Operation(NAME, DELETE, None), Operation(loggers.ROOT, SET, "WARN")])
    with pytest.raises(KafkaError) as refused:
        loggers.check([operation])
    assert refused.value.code is code
