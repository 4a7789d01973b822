"""Orders with the name of their customer: a stream joined with a table, both resized while orders come.

    anabranch topics create customers --partitions 2
    anabranch topics create orders --partitions 2
    anabranch topics create orders-with-names --partitions 2
    anabranch streams examples/enrichment.py:topology --application-id enrichment --state-dir enrichment-state
    python examples/enrichment.py customers 127.0.0.1:9092
    python examples/enrichment.py orders 127.0.0.1:9092
    anabranch topics alter customers --partitions 4
    anabranch topics alter orders --partitions 4
    python examples/enrichment.py check 127.0.0.1:9092

Type the two commands that resize while the orders are sent. The last one waits for all orders, and then says whether
each came once, and those of each customer in their order.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from typing import Any, Final

from anabranch import JSON, Consumer, Producer, Topology

CUSTOMERS: Final = 50
ORDERS: Final = 2000
PAUSE_S: Final = 0.1
"""The pause after one order of each customer."""


def topology() -> Topology:
    """The whole application. `left`: an order whose customer is unknown has no name, instead of being left out."""
    application = Topology()
    customers = application.table("customers", value=JSON)
    orders = application.stream("orders", value=JSON)
    orders.join(customers, with_name, left=True).to("orders-with-names")
    return application


def with_name(order: dict[str, Any], customer: dict[str, Any] | None) -> dict[str, Any]:
    """Return an order with the name of its customer."""
    return {**order, "name": customer and customer["name"]}


def customer_id(number: int) -> bytes:
    """Return the customer of an order."""
    return b"customer-%d" % (number % CUSTOMERS)


async def send_customers(servers: str) -> None:
    """Send the rows of the table."""
    async with Producer(servers) as producer:
        for number in range(CUSTOMERS):
            await producer.send("customers", json.dumps({"name": f"name {number}"}).encode(), customer_id(number))
        await producer.flush()


async def send_orders(servers: str) -> None:
    """Send the orders: one of each customer, a pause, one of each again."""
    async with Producer(servers) as producer:
        for number in range(ORDERS):
            await producer.send("orders", json.dumps({"number": number}).encode(), customer_id(number))
            if number % CUSTOMERS == CUSTOMERS - 1:
                await asyncio.sleep(PAUSE_S)
        await producer.flush()


async def read(servers: str) -> list[tuple[bytes, dict[str, Any]]]:
    """Return the results, as soon as there are as many as orders."""
    results: list[tuple[bytes, dict[str, Any]]] = []
    async with Consumer(
        "orders-with-names",
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        while len(results) < ORDERS:
            for rows in (await consumer.getmany(timeout_ms=1000)).values():
                for record in rows:
                    assert record.key is not None and record.value is not None
                    results.append((record.key, json.loads(record.value)))
    return results


def faults(results: Iterable[tuple[bytes, dict[str, Any]]], orders: int = ORDERS) -> list[str]:
    """Return what is wrong with the results: each order comes once, behind those of its customer, with the name."""
    expected = {customer_id(number): iter(range(number, orders, CUSTOMERS)) for number in range(CUSTOMERS)}
    found = []
    for key, order in results:
        number = next(expected[key], None)
        if order["number"] != number:
            found.append(f"{key.decode()} has order {order['number']} in place of {number}")
        if order["name"] != f"name {int(key.removeprefix(b'customer-'))}":
            found.append(f"order {order['number']} of {key.decode()} has the name {order['name']!r}")
    missing = [number for rest in expected.values() for number in rest]
    return [*found, *(f"order {number} is missing" for number in sorted(missing))]


async def check(servers: str) -> None:
    """Say what is wrong with the results."""
    if wrong := faults(await read(servers)):
        sys.exit("\n".join(wrong))
    print(f"{ORDERS} orders: each came once, in the order of its customer, and with the customer's name")


if __name__ == "__main__":
    _, what, where = sys.argv
    asyncio.run({"customers": send_customers, "orders": send_orders, "check": check}[what](where))
