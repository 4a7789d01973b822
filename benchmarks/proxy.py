"""The cost of a proxy: added latency of a small request and remaining throughput, compared with no proxy.

A cluster of one broker runs in its own process, behind three proxies in theirs: one that only passes bytes, one with
ten rules that do not match, one with a journal. The same bytes go to each through the same blocking socket,
alternately; records of 1 KiB go through librdkafka. The proxy's processor time per request is more reliable than
latencies, for which processes share the machine.

    python -m benchmarks.proxy [--requests 2000] [--rounds 3]
"""

from __future__ import annotations

import json
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.latency import TOPIC, Line, leader_of, small_fetch, small_produce
from benchmarks.peers import COMMANDS, Peer, produce_one, running
from benchmarks.report import Figure, median, percentile, run_benchmark, table, times, working
from benchmarks.throughput import RECORD, RECORDS, consumed_per_s, create_topic, produced_per_s

REQUESTS: Final = 2000
ROUNDS: Final = 3
RULES: Final = 10
DIRECT: Final = "no proxy"
AIM_US: Final = 100.0


def proxy_command() -> list[str]:
    return [str(Path(sysconfig.get_path("scripts")) / "anabranch"), "proxy", "--port", "0"]


def rules_that_do_not_match() -> list[dict[str, Any]]:
    """Rules about the same requests, for other topics."""
    return [{"api": ["Produce", "Fetch"], "topic": f"other-{number}", "delay_ms": 1} for number in range(RULES)]


@contextmanager
def ways(directory: Path) -> Iterator[dict[str, Peer]]:
    """The cluster, and the proxies in front of it."""
    rules = directory / "rules.json"
    rules.write_text(json.dumps(rules_that_do_not_match()))
    options = {
        "proxy": (),
        f"proxy, {RULES} rules": ("--rules", str(rules)),
        "proxy, journal": ("--control", "127.0.0.1:0", "--control-journal", "1000"),
    }
    COMMANDS["proxy"] = proxy_command
    try:
        with ExitStack() as stack:
            found = {DIRECT: stack.enter_context(running("anabranch", "--brokers", "1"))}
            for name, words in options.items():
                found[name] = stack.enter_context(running("proxy", "--upstream", found[DIRECT].bootstrap, *words))
                found[name].bootstrap = found[name].bootstrap.partition(" ")[0]
            yield found
    finally:
        del COMMANDS["proxy"]


def measured_requests(found: dict[str, Peer], requests: int, rounds: int) -> dict[tuple[str, str], tuple[float, ...]]:
    """(request, target) -> latency at 50 and 99 percent, and the proxy's processor time, in microseconds."""
    produce_one(found[DIRECT].bootstrap, TOPIC)
    lines = {name: Line(*leader_of(peer.bootstrap, TOPIC)) for name, peer in found.items()}
    messages = {"Produce, acks=1": small_produce(TOPIC), "Fetch": small_fetch(TOPIC)}
    for _ in range(20):  # more than one fetch can return
        lines[DIRECT].call(messages["Produce, acks=1"])
    taken: dict[tuple[str, str], list[float]] = {}
    spent: dict[tuple[str, str], float] = {}
    for round_ in range(rounds + 1):
        for what, message in messages.items():
            for name, line in lines.items():
                before_s = found[name].processor_s[0]
                some = line.times_us(message, max(1, requests // rounds))
                if round_:
                    taken.setdefault((what, name), []).extend(some)
                    spent[what, name] = spent.get((what, name), 0.0) + found[name].processor_s[0] - before_s
    for line in lines.values():
        line.close()
    return {
        key: (percentile(all_, 50), percentile(all_, 99), spent[key] * 1e6 / len(all_)) for key, all_ in taken.items()
    }


def measured_throughput(found: dict[str, Peer], rounds: int) -> dict[tuple[str, str], float]:
    """(direction, target) -> records per second."""
    rates: dict[tuple[str, str], float] = {}
    for number, (name, peer) in enumerate(found.items()):
        topic = f"through-{number}"
        create_topic(peer.bootstrap, topic, replicas=1)
        rates["produce, acks=1", name] = median(produced_per_s(peer.bootstrap, topic, "1", rounds))
        rates["consume", name] = median(consumed_per_s(peer.bootstrap, topic, rounds))
    return rates


def measure(requests: int = REQUESTS, rounds: int = ROUNDS, *, throughput: bool = True) -> list[Figure]:
    with tempfile.TemporaryDirectory() as directory, ways(Path(directory)) as found, working("proxy") as status:
        measured = measured_requests(found, requests, rounds)
        status.update("proxy: throughput")
        rates = measured_throughput(found, rounds) if throughput else {}
    direct = {what: one for (what, name), one in measured.items() if name == DIRECT}
    table(
        f"one small request through a proxy, microseconds, {requests} requests each",
        *("", "p50", "p99", "p50, ratio", "processor time"),
        rows=[
            (f"{what}: {name}", f"{p50:.0f}", f"{p99:.0f}", times(p50, direct[what][0]), f"{spent:.0f}")
            for (what, name), (p50, p99, spent) in sorted(measured.items(), key=lambda one: one[0][0])
        ],
        note=f"processor time: of the proxy for each request; of the broker where there is {DIRECT}",
    )
    if rates:
        table(
            f"records of {len(RECORD)} bytes through a proxy, median of {rounds} rounds of {RECORDS}",
            *("", "records/s", "MB/s", "ratio"),
            rows=[
                (
                    f"{what}: {name}",
                    f"{rate:,.0f}",
                    f"{rate * len(RECORD) / 1e6:.0f}",
                    times(rate, rates[what, DIRECT]),
                )
                for (what, name), rate in sorted(rates.items(), key=lambda one: one[0][0])
            ],
        )
    return [*_latencies(measured, direct), *_rates(rates)]


def _latencies(
    measured: dict[tuple[str, str], tuple[float, ...]], direct: dict[str, tuple[float, ...]]
) -> list[Figure]:
    figures = []
    for (what, name), (p50, _, spent) in measured.items():
        if name != DIRECT:
            plain = name == "proxy"
            figures.append(
                Figure(
                    f"{what} through a {name}: adds",
                    f"< {AIM_US:.0f} us of processor time" if plain else "shown",
                    f"{spent:.0f} us, p50 {p50:.0f} us",
                    f"{DIRECT}: p50 {direct[what][0]:.0f} us",
                    spent < AIM_US if plain else None,
                )
            )
    return figures


def _rates(rates: dict[tuple[str, str], float]) -> list[Figure]:
    return [
        Figure(
            f"{what} through a {name}",
            "shown",
            f"{rate:,.0f}/s",
            f"{DIRECT}: {rates[what, DIRECT]:,.0f}/s ({times(rate, rates[what, DIRECT])})",
        )
        for (what, name), rate in rates.items()
        if name != DIRECT
    ]


def main(arguments: list[str] | None = None) -> int:
    return run_benchmark(
        __doc__,
        measure,
        arguments,
        requests=(REQUESTS, "of each kind, by each way"),
        rounds=(ROUNDS, "the number of rounds; the median is shown"),
    )


if __name__ == "__main__":
    sys.exit(main())
