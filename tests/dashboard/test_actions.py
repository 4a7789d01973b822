"""Actions of the page take effect on the cluster, and show the equivalent command."""

from __future__ import annotations

import pytest

from anabranch.control.client import ControlClient
from tests.dashboard.chromium import Page

pytestmark = pytest.mark.browser


def shown(page: Page, title: str, python: str) -> None:
    """The last action is shown as curl and as Python."""
    page.see(".done strong", title)
    page.driver.execute_script("document.querySelector('.done pre').focus()")  # else it closes by itself, after 9 s
    page.see(".done .pill", "done")
    assert page.find(".done pre")[0].text.startswith("curl")

    def told() -> bool:
        page.click("Python", ".done")
        return python in page.find(".done pre")[0].text

    page.until(told, python)
    page.click("Close", ".done")


def node(control: ControlClient, node_id: int) -> dict[str, object]:
    return next(one for one in control.ask("GET", "/v1/watch")["rows"].items() if one[0] == f"node/{node_id}")[1]


def test_nodes_and_links_are_controlled(page: Page, lively: str) -> None:
    control = ControlClient(lively)
    page.open()
    page.click("Freeze, node 3")
    shown(page, "Freeze node 3", "control.nodes[3].freeze()")
    page.see(".card.frozen", "frozen")
    assert node(control, 3)["state"] == "frozen"
    page.click("Thaw, node 3")
    shown(page, "Thaw node 3", "control.nodes[3].thaw()")
    page.gone(".card.frozen")
    before = node(control, 2)["session"]
    page.click("Expire session, node 2")
    shown(page, "Expire the session of node 2", "control.nodes[2].expire_session()")
    page.until(lambda: node(control, 2)["session"] != before, "another session")
    page.click("Kill, node 3")
    shown(page, "Kill node 3", "control.nodes[3].kill()")
    page.see("svg.map .broker.dead")
    assert not control.nodes[3].running
    page.click("Start, node 3")
    shown(page, "Start node 3", "control.nodes[3].start()")
    control.wait_for(node=3)
    page.driver.execute_script("document.querySelector('main').scrollTo(0, 0)")
    page.drag(page.middle("svg.map .broker circle", 0), page.middle("svg.map .broker.alive:last-child circle"))
    page.see("dialog", "Cut a link")
    page.click("Cut", "dialog")
    page.see(".done .pill", "done")
    (links,) = [one["rule"]["link"] for one in control.ask("GET", "/v1/faults") if "link" in one["rule"]]
    assert links == ["1:3", "3:1"]
    page.see("svg.map .link.cut")
    control.faults.clear()
    page.gone("svg.map .link.cut")
    assert page.complaints() == []


def test_topics_records_and_resizes_are_managed(page: Page, lively: str) -> None:
    control = ControlClient(lively)
    page.open("topics")
    page.click("New topic…")
    page.type("topic", "made-here")
    page.type("partitions", "2")
    page.type("replicas", "2")
    page.type("property", "retention.ms")
    page.type("setting", "60000")
    page.click("Create", "dialog")
    shown(page, "Create made-here", 'create_topic("made-here", 2, replicas=2, configs={"retention.ms": "60000"})')
    page.go("topics/made-here")
    assert page.see(".tracks").get_attribute("title").count("node") == 2
    page.click("Properties of made-here")
    page.see("dialog .property", "retention.ms")
    page.type("value", "70000", "dialog .property")
    page.click("Set retention.ms", "dialog")
    page.see(".done pre", '{"set":{"retention.ms":"70000"}}')
    page.click("Default of retention.ms", "dialog")
    page.until(lambda: not page.find("dialog .property .pill"), "the default")
    page.click("Close", "dialog")
    page.click("Records of made-here-1")
    page.see("dialog summary").click()
    page.type("value", '{"hello": 1}')
    page.type("headers", "trace: ab-cd")
    page.driver.execute_script("document.querySelector('dialog [name=here]').click()")
    page.click("Write", "dialog")
    page.see("dialog td", '{"hello": 1}')
    page.see("dialog .pill", "1 header")
    page.see("dialog [role=status]", "1 record, newest first")
    (record,) = control.records("made-here", 1)
    assert (record["value"], record["headers"]) == ('{"hello": 1}', [["trace", "ab-cd"]])
    page.click("All of 1@0", "dialog")
    assert page.see("dialog .found pre").text == '{\n  "hello": 1\n}'
    assert "header trace" in page.see("dialog .pairs").text
    page.type("find-header", "trace=xy")
    page.click("Find", "dialog")
    page.see("dialog p", "No record is like this")
    assert page.accessibility() == []
    page.click("Close", "dialog")
    control.produce("made-here", "from Python", partition=0, headers=[("trace", "x")])
    assert [one["headers"] for one in control.records("made-here", 0)] == [[["trace", "x"]]]
    page.go("lineage/made-here")
    field = page.see(".panel input[type=number]")
    page.driver.execute_script(
        "arguments[0].value = 3; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))", field
    )
    page.see(".moves", "of all keys move")
    page.see("svg.river .head", "planned")
    page.click("Resize to 3")
    shown(page, "Resize made-here to 3", 'control.resize("made-here", 3)')
    page.see("svg.river .head", "generation 1")
    control.wait_for(topic="made-here", partitions=3)
    assert page.complaints() == []


def test_group_is_reset_after_a_preview(page: Page, lively: str) -> None:
    control = ControlClient(lively)
    control.ask("POST", "/v1/topics/payments/records", {"records": [{"value": "x", "partition": 0}] * 5})
    said = {"topic": "payments", "partition": 0, "to": "latest"}
    before = control.ask("POST", "/v1/groups/fresh/offsets", said)["offsets"][0]["after"]
    assert before > 3
    page.open("groups")
    page.click("Reset offsets of fresh")
    page.type("partition", "0")
    page.type("to", "-3")
    page.click("Preview", "dialog")
    assert page.see("dialog td b").text == f"{before - 3:,}"
    page.type("to", "2")
    page.gone("dialog td")
    page.click("Preview", "dialog")
    page.see("dialog td b", "2")
    assert page.accessibility() == []
    page.click("Reset", "dialog")
    page.gone("dialog")
    shown(page, "Reset fresh in payments", 'control.ask("POST", "/v1/groups/fresh/offsets"')
    rows = control.ask("GET", "/v1/watch")["rows"]
    assert rows["commits/fresh"] == {"payments": {"0": 2}}
    page.click("Reset offsets of billing")
    page.click("Preview", "dialog")
    page.see("dialog [role=alert]", "which must stop first")
    assert not page.find("dialog .primary")[0].is_enabled()
    page.click("Close", "dialog")
    assert page.complaints() == []


@pytest.mark.costly
def test_rules_clock_and_snapshots_are_controlled(page: Page, lively: str) -> None:
    control, name = ControlClient(lively), "late?x/50%"
    page.open("rules")
    page.click("New rule…")
    page.see("dialog .primary", "Add")
    fields, explained = page.find("dialog label"), page.find("dialog label .help")
    assert len(fields) == len(explained) > 20
    assert all(one.text for one in explained)
    assert page.box("dialog .primary")["bottom"] < page.box("dialog")["bottom"] < 800
    page.type("name", name)
    page.type("api", "Metadata, ApiVersions")
    page.type("delay_ms", "1, 2")
    page.type("times", "2")
    page.click("Add", "dialog")
    page.gone("dialog")
    page.see("td", name)
    (rule,) = [one["rule"] for one in control.ask("GET", "/v1/faults") if one["name"] == name]
    assert rule == {"name": name, "api": ["Metadata", "ApiVersions"], "delay_ms": [1.0, 2.0], "times": 2}
    page.click("New rule…")
    page.type("api", "Produce")
    page.click("Add", "dialog")
    page.see("dialog [role=alert]", "the rule has no action; the actions are")
    page.click("Close", "dialog")
    page.click(f"Remove {name}")
    page.until(lambda: not [one for one in control.ask("GET", "/v1/faults") if one["name"] == name], "no such rule")
    page.go("cluster")
    page.click("Clock…")
    assert page.accessibility() == []
    before = control.ask("GET", "/v1/clock")["at"]
    page.type("by", "5s")
    page.click("Advance", "dialog")
    page.until(lambda: control.ask("GET", "/v1/clock")["at"] > before + 5, "the clock to be moved on")
    page.click("Close", "dialog")
    page.click("Snapshots…")
    assert page.accessibility() == []
    page.type("name", "kept")
    page.click("Take", "dialog")
    page.see("dialog td", "kept")
    control.create_topic("after-it")
    page.click("Restore", "dialog")
    page.until(lambda: "after-it" not in [one["topic"] for one in control.state()["topics"]], "the state of before")
    page.click("Forget", "dialog")
    page.until(lambda: not control.ask("GET", "/v1/state/snapshots"), "no snapshot")
    assert page.complaints() == []
