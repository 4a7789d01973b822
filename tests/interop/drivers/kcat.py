"""kcat, librdkafka's command line: runs it and parses its output."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time

from tests.interop.drivers.common import Arguments, Door, doors, drive, emit, record

LINE = '{"event":"record","partition":%p,"offset":%o,"key":"%k","value":"%s"}\n'
REBALANCED = re.compile(r"% Group \S+ rebalanced\b(.*)")
OLD = ["-X", "api.version.request=false", "-X", "broker.version.fallback=0.9.0"]


def settings(asked: Arguments, **properties: object) -> list[str]:
    """The command line that all modes share."""
    words = ["kcat", "-b", asked.servers]
    for name, value in properties.items():
        words += ["-X", f"{name.replace('_', '.')}={value}"]
    return words + (OLD if asked.old else [])


def produce(asked: Arguments) -> None:
    """kcat ends with 0 when everything was delivered, and with 1 when something was not."""
    properties: dict[str, object] = {"linger_ms": 1}
    if not asked.old:
        properties["enable_idempotence"] = "true"
    command = [*settings(asked, **properties), "-P", "-t", asked.topic, "-K", "\t", "-z", asked.codec or "none"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as kcat:
        assert kcat.stdin is not None and kcat.stderr is not None
        sent = []
        for number in asked.numbers():
            key, value = record(number)
            kcat.stdin.write(key + b"\t" + value + b"\n")
            kcat.stdin.flush()
            sent.append(value.decode())
        kcat.stdin.close()
        said = kcat.stderr.read().decode()
        if kcat.wait() == 0:
            for one in sent:
                emit("acked", value=one)
        else:
            emit("failed", value=sent[0], error=said.strip()[-500:])


def consume(asked: Arguments) -> None:
    """A member of a group."""
    properties: dict[str, object] = {
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 200,
        "session_timeout_ms": asked.session_ms or 30000,
        "heartbeat_interval_ms": 500,
        "topic_metadata_refresh_interval_ms": 1000,
        "isolation_level": asked.isolation or "read_uncommitted",
        "partition_assignment_strategy": "cooperative-sticky" if asked.assignor == "cooperative" else "range",
    }
    if asked.instance:
        properties["group_instance_id"] = asked.instance
    command = [*settings(asked, **properties), "-u", "-f", LINE.replace("\n", "\\n"), "-G", asked.group, asked.topic]
    kcat = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert kcat.stdout is not None and kcat.stderr is not None
    reader = threading.Thread(target=rebalances, args=(kcat.stderr,), daemon=True)
    reader.start()
    threading.Thread(target=ends_with, args=(asked, kcat), daemon=True).start()
    for line in kcat.stdout:
        one = json.loads(line)
        emit(one.pop("event"), **one)
    kcat.wait()
    reader.join()


def rebalances(stderr: object) -> None:
    """The group's rebalances in kcat's output."""
    for line in stderr:  # type: ignore[attr-defined]
        if found := REBALANCED.search(line):
            partitions = [int(one) for one in re.findall(r"\[(\d+)\]", found[1])]
            emit("revoked" if "revo" in found[1] else "assigned", partitions=partitions)
        elif "%" in line:
            emit("said", line=line.strip())


def ends_with(asked: Arguments, kcat: subprocess.Popen[str]) -> None:
    """SIGTERM lets kcat leave its group."""
    asked.wait_stopped()
    kcat.terminate()


def transact(asked: Arguments) -> None:
    """kcat makes one transaction of one input; what is interrupted is aborted."""
    for number in range(asked.transactions):
        values = range(number * asked.per, (number + 1) * asked.per)
        command = [*settings(asked, transactional_id=asked.transactional_id), "-P", "-t", asked.topic, "-K", "\t"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as kcat:
            assert kcat.stdin is not None
            for one in values:
                kcat.stdin.write(b"\t".join(record(one)) + b"\n")
            kcat.stdin.close()
            assert kcat.wait() == 0
        emit("committed", values=[f"{one:08d}" for one in values])


def through(door: Door, topic: str) -> None:
    """Produce and consume a record; kcat is stopped at its first error."""
    words = ["-b", door.servers]
    properties = {
        "security.protocol": door.protocol,
        "ssl.ca.location": door.ca,
        "ssl.certificate.location": door.identity,
        "ssl.key.location": door.identity,
        "message.timeout.ms": int(door.patience_s * 1000),
    }
    if door.sasl:
        properties |= {"sasl.mechanism": door.mechanism}
    if door.token_url:
        properties |= {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": door.token_url}
        properties |= {"sasl.oauthbearer.client.id": door.user, "sasl.oauthbearer.client.secret": door.password}
    elif door.sasl:
        properties |= {"sasl.username": door.user, "sasl.password": door.password}
    for name, value in properties.items():
        words += ["-X", f"{name}={value}"] if value is not None else []
    _said(["kcat", *words, "-P", "-t", topic], door, door.value + b"\n")
    until = time.monotonic() + door.patience_s
    while door.value not in _said(["kcat", *words, "-C", "-t", topic, "-o", "beginning", "-e", "-q"], door).split(
        b"\n"
    ):
        if time.monotonic() > until:
            raise TimeoutError("nothing came back")


def _said(command: list[str], door: Door, typed: bytes = b"") -> bytes:
    try:
        ran = subprocess.run(command, input=typed, capture_output=True, timeout=door.patience_s * 2, check=False)
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{error.stderr!r}") from None
    if ran.returncode != 0:
        raise PermissionError(ran.stderr.decode()[-2000:])
    return ran.stdout


if __name__ == "__main__":
    drive({"produce": produce, "consume": consume, "transact": transact, "doors": doors(through)})
