"""The dashboard of a front has the rows of all nodes, as that of a cluster in one process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from anabranch import Consumer
from anabranch.control.tour.guide import Guide
from anabranch.dashboard.feed import Feed
from anabranch.dashboard.traffic import TimedDispatcher
from anabranch.faults.rule import Rule
from tests.anabranch.control.front.fronts import OnAgents, on_agents
from tests.anabranch.dashboard.test_feed import Page
from tests.broker.serving import until


@contextlib.asynccontextmanager
async def watched(count: int = 2) -> AsyncIterator[tuple[OnAgents, Feed, Page]]:
    async with on_agents(count) as on:
        _, feed = on.front.open_dashboard(Guide())
        page = Page()
        reading = asyncio.create_task(page.read(feed))
        try:
            yield on, feed, page
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await feed.stop()


async def test_resize_with_a_group_is_shown_with_gates_over_all_nodes() -> None:
    async with watched() as (on, _, page):
        await on.with_topic("orders", 2, 2)
        await page.until(lambda rows: {rows[f"partition/orders/{one}"]["leader"] for one in (0, 1)} == {1, 2})
        async with on.front.producer() as producer, on.front.admin() as admin:
            for number in range(40):
                await producer.send_and_wait("orders", b"x", b"%d" % number)
            await page.until(lambda rows: sum(rows[f"partition/orders/{one}"]["hw"] for one in (0, 1)) == 40)
            group = {"group_id": "billing", "auto_offset_reset": "earliest", "enable_auto_commit": False}
            async with Consumer("orders", bootstrap_servers=on.agents[1].bootstrap_servers, **group) as consumer:
                await consumer.getone()
                await consumer.commit()
                await page.until(lambda rows: sum(rows["commits/billing"]["orders"].values()) == 1)
                await admin.create_partitions("orders", 4)
                await page.until(lambda rows: {"gate/billing/orders/2", "gate/billing/orders/3"} <= rows.keys())
                await page.until(lambda rows: len(rows["topic/orders"]["cuts"]) == 2)  # one from each leader's node
        cuts = page.rows["topic/orders"]["cuts"]
        partitions = [page.rows[f"partition/orders/{one}"] for one in (0, 1)]
        assert [[one[0], one[2]] for one in cuts] == [[one, row["hw"]] for one, row in enumerate(partitions)]
        assert all(log[1:] == [0, row["hw"]] for row in partitions for log in row["replicas"])
        await page.until(lambda rows: page.traffic and "Fetch" in page.traffic[-1]["apis"])
        awaited = {"rebalance", "gate closed", "resize published"}
        await page.until(lambda rows: awaited <= {one["kind"] for one in page.events})


async def test_nodes_without_an_answer_are_dead_or_frozen_and_rules_have_their_hits() -> None:
    async with watched() as (on, _, page):
        await page.until(lambda rows: {rows[f"node/{one}"]["state"] for one in (1, 2)} == {"alive"})
        assert sum(page.rows[f"node/{one}"]["controller"] for one in (1, 2)) == 1
        on.nodes[2].frozen = True
        await page.until(lambda rows: rows["node/2"]["state"] == "frozen" and rows["node/2"]["roles"])
        on.nodes[2].frozen, on.nodes[2].running = False, False
        await page.until(lambda rows: rows["node/2"] == {**rows["node/2"], "state": "dead"})
        assert "roles" not in page.rows["node/2"]
        on.nodes[2].refusal = "node 2 runs on elsewhere"
        await page.until(lambda rows: rows["node/2"].get("refused") == "node 2 runs on elsewhere")
        assert "refused" not in page.rows["node/1"]
        await on.front.rules.add(Rule(name="slow", api=("Metadata",), delay_ms=(1.0,)))
        await on.metadata_error(1)
        await page.until(lambda rows: rows["rule/slow"]["hits"] > 0)
        await on.front.rules.clear()
        await page.until(lambda rows: "rule/slow" not in rows)


async def test_agents_count_requests_only_while_a_page_is_open() -> None:
    def timed(on: OnAgents) -> list[bool]:
        return [isinstance(one.node.server.dispatcher, TimedDispatcher) for one in on.agents.values()]

    async with on_agents() as on:
        _, feed = on.front.open_dashboard(Guide())
        await feed.collect()
        assert feed.rows["node/2"]["state"] == "alive"
        assert timed(on) == [False, False]
        async with contextlib.aclosing(feed.follow()) as messages:
            assert (await anext(messages))[0] == "snapshot"
            assert timed(on) == [True, True]
        await until(lambda: not any(timed(on)))
        await feed.stop()
