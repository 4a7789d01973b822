"""The lines of `topics alter` about stock consumer groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.clients.config_admin import ConfigEntry
from anabranch.clients.metadata import Topic
from anabranch.clients.stock_groups import GATES, ORDERED, PRODUCERS
from anabranch.protocol.apis.list_groups import ListedGroup
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.lineage import Lineage
from anabranch.resize.stock_groups import group_lines, plan
from tests.broker.coordinators.gated_orders import orders
from tests.broker.coordinators.stock_members import TOPIC

KNOWN = Topic(TOPIC, b"", {}, lineage=Lineage(1, [(0, 4)]))
READERS = "rdkafka/10.0.0.7 and 1 more"
DEFAULT, TOPIC_SOURCE = 5, 1


def configured(**set_here: str) -> dict[str, ConfigEntry]:
    values = {GATES: "auto", PRODUCERS: "auto", ORDERED: "true"}
    set_names = {name.replace("_", "."): text for name, text in set_here.items()}
    return {
        name: ConfigEntry(
            name=name,
            value=set_names.get(name, value),
            source=TOPIC_SOURCE if name in set_names else DEFAULT,
            read_only=False,
            sensitive=False,
        )
        for name, value in values.items()
    }


def listed(group_id: str, protocol: str = "range") -> ListedGroup:
    return ListedGroup(group_id=group_id, protocol_type="consumer", readers=READERS, protocol=protocol)


def plan_text(count: int, *, has_generations: bool = True, groups: int = 1, **set_here: str) -> str:
    readers = [listed(f"readers-{number}") for number in range(groups)]
    return "\n".join(
        group_lines(replace(KNOWN, has_generations=has_generations), count, configured(**set_here), readers)
    )


def test_growth_plan_shows_whether_stock_groups_keep_key_order() -> None:
    assert "read it in the group readers-0: rdkafka/10.0.0.7 and 1 more" in plan_text(5)
    assert "they keep the order of keys" in plan_text(5)
    assert "they lose the order of keys (reshard.legacy.consumers=auto)" in plan_text(5, has_generations=False)
    assert "they keep the order of keys" in plan_text(5, has_generations=False, reshard_legacy_producers="verify")
    assert "they keep the order of keys" in plan_text(5, has_generations=False, enable_ordered_delivery="true")
    assert "they lose the order" in plan_text(5, enable_ordered_delivery="false")
    assert "they lose the order" in plan_text(5, reshard_legacy_consumers="ignore")
    assert "they keep the order of keys" in plan_text(5, has_generations=False, reshard_legacy_consumers="gate")
    assert all(plan_text(count, groups=0) == "" for count in (2, 5))
    assert "and 2 more" in plan_text(5, groups=7)
    assert "a merge breaks their order of keys" in plan_text(2)


async def test_plan_omits_streams_groups_from_stock_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    async def found(_network: object, _topic: str) -> list[ListedGroup]:
        return [listed("app", protocol) for protocol in ("stream", "streams", "range")]

    monkeypatch.setattr("anabranch.resize.stock_groups.stock_groups_of", found)
    async with orders() as (_, admin, _):
        assert len(await plan(admin, KNOWN, 5, configured())) == 2


async def test_plan_reports_failure_to_list_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_network: object, _topic: str) -> list[ListedGroup]:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no")

    monkeypatch.setattr("anabranch.resize.stock_groups.stock_groups_of", fails)
    async with orders() as (_, admin, _):
        assert "cannot list the groups" in (await plan(admin, KNOWN, 2, {}))[0]
