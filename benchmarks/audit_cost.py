"""The cost of auditing for a consumer: records per second with and without `audit=`.

Two members, each in its own group, alternately read the same topic of four partitions with `getmany`: 500 records at
most, automatic commits. One of them writes its deliveries to the audit topic. The application parses the values, JSON
of about 240 bytes; for comparison, a bare loop drops all records, so that only the audit reads them. The ratio of each
pair of rounds is computed for wall-clock time, and for this process's processor time, which other programs disturb
less.

    python -m benchmarks.audit_cost [--records 200000] [--rounds 7]
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from typing import Final, NamedTuple

from anabranch import Admin, Consumer, NewTopic, Producer
from benchmarks.peers import running
from benchmarks.report import Figure, median, run_benchmark, table, working

TOPIC: Final = "audited"
AUDIT: Final = "audited-audit"
PARTITIONS: Final = 4
KEYS: Final = 1000
RECORDS: Final = 200_000
ROUNDS: Final = 7
AIM: Final = 0.10


class Round(NamedTuple):
    """One pass over the topic."""

    clock_s: float
    processor_s: float


class Cost(NamedTuple):
    """Alternating rounds without and with an audit."""

    plain: list[Round]
    audited: list[Round]

    def share(self, field: str) -> float:
        """The share of the rate that an audit costs."""
        pairs = zip(self.plain, self.audited, strict=True)
        return median(1 - getattr(plain, field) / getattr(audited, field) for plain, audited in pairs)


def value(number: int, rng: random.Random) -> bytes:
    fields = {
        "id": number,
        "carrier": rng.choice(["AA", "B6", "DL", "EV", "UA"]),
        "flight": rng.randrange(10_000),
        "tail": f"N{rng.randrange(100_000)}",
        "origin": "JFK",
        "destination": "LAX",
        "departure": rng.random(),
        "arrival": rng.random(),
        "remark": "x" * 60,
    }
    return json.dumps(fields).encode()


async def fill(servers: str, records: int) -> None:
    """Create a topic as an auditing producer leaves it, and the audit topic."""
    async with Admin(servers) as admin:
        for name in (TOPIC, AUDIT):
            await admin.create_topics([NewTopic(name=name, partitions=PARTITIONS, replication_factor=3)])
            await admin.wait_for_topic(name, replicas=3)
    rng = random.Random(1)
    async with Producer(servers, audit=True, linger_ms=20) as producer:
        for number in range(records):
            await producer.send(TOPIC, key=b"key-%d" % rng.randrange(KEYS), value=value(number, rng))


async def read(consumer: Consumer, records: int, *, parse: bool) -> Round:
    """Read everything once, up to the last commit."""
    for partition in consumer.assignment():
        consumer.seek(partition, 0)
    clock_s, processor_s, left = time.perf_counter(), time.process_time(), records
    while left:
        for taken in (await consumer.getmany(timeout_ms=1000)).values():
            left -= len(taken)
            if parse:
                for record in taken:
                    json.loads(record.value or b"{}")
    await consumer.commit()
    return Round(time.perf_counter() - clock_s, time.process_time() - processor_s)


async def compare(servers: str, records: int, rounds: int) -> dict[bool, Cost]:
    """The costs, with and without parsing of values."""
    await fill(servers, records)
    members = [
        Consumer(TOPIC, bootstrap_servers=servers, group_id=f"group-{audit}", auto_offset_reset="earliest", audit=audit)
        for audit in (None, AUDIT)
    ]
    found = {parse: Cost([], []) for parse in (True, False)}
    for member in members:
        await member.start()
    try:
        for number in range(rounds + 1):
            for parse, cost in found.items():
                for member, row in zip(members, cost, strict=True):
                    one = await read(member, records, parse=parse)
                    if number:  # the first round joins the group and warms up
                        row.append(one)
    finally:
        for member in members:
            await member.stop()
    return found


def measure(records: int = RECORDS, rounds: int = ROUNDS) -> list[Figure]:
    with working("audit cost"), running("anabranch") as peer:
        costs = asyncio.run(compare(peer.bootstrap, records, rounds))
    names = {True: "values parsed as JSON", False: "bare loop"}
    rates = {parse: [records / median(one.clock_s for one in row) for row in cost] for parse, cost in costs.items()}
    table(
        f"audit cost: {records:,} records of about 240 bytes, median of {rounds} rounds in turn",
        *("", "records/s", "audited", "cost", "processor us/record", "audited", "cost"),
        rows=[
            (
                names[parse],
                *(f"{rate:,.0f}" for rate in rates[parse]),
                f"{cost.share('clock_s'):.1%}",
                *(f"{median(one.processor_s for one in row) / records * 1e6:.2f}" for row in cost),
                f"{cost.share('processor_s'):.1%}",
            )
            for parse, cost in costs.items()
        ],
        note="an event per delivery: place, hash of the key, number, fingerprint of the value; stored before a commit",
    )
    return [
        Figure(
            f"an audit's cost, {names[parse]}",
            f"< {AIM:.0%}" if parse else "shown",
            f"{cost.share('clock_s'):.1%} ({rates[parse][1]:,.0f}/s)",
            f"no audit {rates[parse][0]:,.0f}/s",
            cost.share("clock_s") < AIM if parse else None,
        )
        for parse, cost in costs.items()
    ]


def main(arguments: list[str] | None = None) -> int:
    return run_benchmark(
        __doc__, measure, arguments, records=(RECORDS, "in the topic"), rounds=(ROUNDS, "measured rounds")
    )


if __name__ == "__main__":
    sys.exit(main())
