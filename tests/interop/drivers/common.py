"""What the drivers share. A driver is a program around one Kafka client, the same in every language:

    DRIVER COMMAND '{"servers": ..., ...}'

It writes one JSON object per line to stdout, and ends when its work is done or its stdin is closed.

    produce    servers topic count first codec pace_ms        -> acked {value} | failed {value, error}
    consume    servers topic group assignor instance isolation session_ms protocol
                                          -> assigned | revoked {partitions}, record {partition, offset, key, value}
    transact   servers topic transactional_id transactions per -> committed | aborted {values}
    copy       servers topic target group transactional_id -> copied {values} | retried | aborted | restarted {error}
    admin      servers topic                                   -> step {name, seen}
    doors      topic doors[{name, servers, protocol, mechanism, user, password, token, token_url, ca, identity,
                      patience_s}]
                                                               -> in {door, value} | out {door, error}

`doors` produces a record by each door and consumes it again; `patience_s` is how long to try one that may be shut.
Who has a `token_url` gets his token there, as `user` with `password`.
`count` 0 produces until stdin is closed. Record n has the key "key-{n % 7}" and the value "{n:08d}".
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

KEYS = 7
DOOR_S = 60.0
"""How long to try a door that should open."""


def emit(event: str, **fields: Any) -> None:
    """Print an event."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


class Arguments:
    """The driver's arguments, and whether it should stop."""

    def __init__(self) -> None:
        self.command = sys.argv[1]
        self._values: dict[str, Any] = json.loads(sys.argv[2])
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def __getattr__(self, name: str) -> Any:
        return self._values.get(name)

    @property
    def stopped(self) -> bool:
        """Whether stdin has been closed."""
        return self._stopped.is_set()

    def wait_stopped(self) -> None:
        """Wait until stdin is closed."""
        self._stopped.wait()

    def numbers(self) -> Iterator[int]:
        """Which records to produce."""
        number = self.first or 0
        while not self.stopped and (not self.count or number < (self.first or 0) + self.count):
            yield number
            number += 1
            if self.pace_ms:
                time.sleep(self.pace_ms / 1000)

    def _watch(self) -> None:
        sys.stdin.read()
        self._stopped.set()


def record(number: int) -> tuple[bytes, bytes]:
    """Key and value."""
    return b"key-%d" % (number % KEYS), b"%08d" % number


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


class Door:
    """A way in; what it does not need is None."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told
        self.value = f"by {told['name']}".encode()
        self.patience_s: float = told.get("patience_s") or DOOR_S

    def __getattr__(self, name: str) -> Any:
        return self._told.get(name)

    @property
    def sasl(self) -> bool:
        """Whether it asks for a login."""
        return str(self.protocol).startswith("SASL")


class Reasons(logging.Handler):
    """What clients log: some raise no more than that they have tried for long enough."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.said.append(record.getMessage())


def doors(passes: Callable[[Door, str], None]) -> Callable[[Arguments], None]:
    """The command that tries each door; what has not raised has got its record back."""

    def run(asked: Arguments) -> None:
        reasons = Reasons()
        logging.getLogger().addHandler(reasons)
        for one in asked.doors:
            door = Door(one)
            reasons.said.clear()
            try:
                passes(door, asked.topic)
            except Exception as error:
                emit("out", door=door.name, error=f"{type(error).__name__}: {error}; {sorted(set(reasons.said))}")
            else:
                emit("in", door=door.name)

    return run


def drive(commands: dict[str, Callable[[Arguments], None]]) -> None:
    """Run the command that was asked for."""
    arguments = Arguments()
    commands[arguments.command](arguments)
    emit("done")
