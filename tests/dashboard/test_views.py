"""Each view shows the cluster's activity, in light and dark, accessible by keyboard and screen reader."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.control.client import ControlClient
from tests.dashboard.chromium import Page
from tests.dashboard.lively import elsewhere

pytestmark = pytest.mark.browser

SHOWN = {
    "cluster": [("svg.map .broker.alive", "leads"), (".card .pill", "controller"), (".stat", "closed gates")],
    "topics/clicks": [(".panel", "12 partitions"), (".track.leader", ""), (".lane .node", "")],
    "lineage/orders": [("svg.river .head", "3"), ("svg.river .label", "cut at"), (".steps li", "published")],
    "groups": [(".member b", "billing-a"), (".tile.closed", "gate"), (".gate", "It opens when")],
    "transactions": [("td", "settlement-1"), (".pill", "Ongoing"), ("td", "payments-")],
    "traffic": [("td", "Produce"), (".uplot canvas", "")],
    "rules": [("td", "slow-commits"), (".pill.bad", "hitting")],
    "events": [(".event .kind", ""), (".filters button", "resizes")],
    "access": [("td", "carol"), (".panel", "This cluster has no authorizer")],
    "zookeeper": [("[role=treeitem]", "brokers"), (".data", "")],
    "tour": [(".story", "A leader dies"), (".story", "A transaction across a resize")],
}


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.costly)])
def test_each_view_shows_current_state(page: Page, scheme: str) -> None:
    page.scheme(scheme)
    page.open()
    for view, things in SHOWN.items():
        page.go(view)
        for selector, text in things:
            page.see(selector, text)
        assert page.accessibility() == [], view
        assert page.overflow() <= 0, view
    assert page.complaints() == []


def test_nothing_overflows_on_a_phone(page: Page) -> None:
    page.size(390, 844, mobile=True)
    page.open()
    for view, things in SHOWN.items():
        page.go(view)
        page.see(things[0][0], things[0][1])
        assert page.overflow() <= 0, view


def test_address_with_a_lone_percent_sign_shows_its_view(page: Page) -> None:
    page.open()
    page.go("lineage/%")
    page.see("nav [aria-current=page]", "Lineage")
    assert page.complaints() == []


def test_navigation_shows_that_it_scrolls_on_a_phone(page: Page) -> None:
    page.size(390, 844, mobile=True)
    page.open()
    page.until(lambda: page.find("nav.after:not(.before)"), "a fading right edge")
    page.go("tour")
    page.until(lambda: page.find("nav.before:not(.after)"), "a fading left edge")
    assert page.box("nav [aria-current=page]")["right"] <= 390


def test_node_buttons_and_the_last_action_are_above_the_timeline(page: Page) -> None:
    page.open()
    page.see(".card", "127.0.0.1")
    limit = page.box(".time")["top"]
    buttons = len(page.find(".card button"))
    assert buttons == 15
    assert max(page.box(".card button", number)["bottom"] for number in range(buttons)) < limit
    page.run("act.js", "it.act({title: 'Look', method: 'GET', path: '/v1/nodes', python: given[0]})", "x\n" * 99)
    page.see(".done .pill", "done")
    page.click("Python", ".done")
    assert page.box(".done")["bottom"] < limit
    page.size(1280, 400)
    assert page.box(".done")["bottom"] < page.box(".time")["top"]
    assert page.box(".done")["top"] >= 0
    page.click("Close", ".done")


def test_a_thousand_partitions_are_one_line_with_totals_for_each_topic(page: Page, lively: str) -> None:
    control = ControlClient(lively)
    page.open("topics")
    page.see(".lane .node")
    assert not page.find(".total")
    control.create_topic("wide", 1000, replicas=1)
    try:
        line = ["wide", "1,000", "0", "0", "0"]
        page.until(lambda: page.see("a.total", "wide").text.split() == line, "all partitions in one line")
        assert not page.find(".lane")
        assert page.accessibility() == []
        assert page.overflow() <= 0
        page.see("a.total", "clicks").click()
        page.see(".lane .node")
        page.go("topics")
        page.click("totals only")
        page.see(".lane .node")
        assert not page.find(".total")
        lanes = "return document.querySelectorAll('.lane').length"
        assert page.driver.execute_script(lanes) < 200, "only the visible part of a list is rendered"
    finally:
        control.ask("DELETE", "/v1/topics/wide")
    page.open("topics")
    page.gone("a.total")
    page.see(".lane .node")


def test_page_that_was_left_keeps_no_connection_and_is_live_when_it_returns(page: Page, lively: str) -> None:
    """A browser keeps the pages that were left, and has six connections to a host."""
    control = ControlClient(lively)
    for _ in range(7):
        page.open("topics")
        page.driver.get("about:blank")
    control.create_topic("meanwhile")
    try:
        page.driver.back()
        page.see(".panel h2", "meanwhile")
    finally:
        control.ask("DELETE", "/v1/topics/meanwhile")


def test_past_is_shown_and_left(page: Page, lively: str) -> None:
    control = ControlClient(lively)
    page.open()
    page.see("nav .dot.alive")
    page.go("events")
    page.see(".filters input").send_keys("generation 3 is what")
    page.see(".event .kind", "resize published")
    control.create_topic("later")
    page.go("topics")
    page.see(".panel h2", "later")
    strip = page.find(".time canvas")[0]
    event = next(one for one in control.events() if one["kind"] == "topic created" and one["topic"] == "later")
    page.driver.execute_script(
        "return import('/dashboard/store.js').then((it) => it.goTo(arguments[0]))", event["at"] - 0.001
    )
    page.see(".banner", "This is how it was")
    page.go("topics")
    page.see(".panel h2", "orders")
    page.until(lambda: not [one for one in page.find(".panel h2") if one.text == "later"], "the topic not to be there")
    strip.send_keys("\ue010")  # End
    page.see(".panel h2", "later")
    assert not page.find(".banner")


def test_empty_cluster_login_and_lost_connection(browser: Page) -> None:
    up = ("-m", "anabranch.cli.main", "up", "--brokers", "1", "--port", "0", "--control", "127.0.0.1:0")
    with elsewhere(*up, "--control-token", "secret") as url:
        page = browser.at(url)
        page.driver.get(url)
        page.see("h1", "Anabranch")
        page.type("token", "wrong", "form")
        page.click("Show the cluster")
        page.see("[role=alert]", "wrong token; see --control-token")
        page.type("token", "secret", "form")
        page.click("Show the cluster")
        page.see("nav .foot", "live")
        assert "secret" not in page.driver.current_url
        for view, text in [
            ("topics", "No topics yet"),
            ("lineage", "No topics yet"),
            ("groups", "No groups yet"),
            ("transactions", "No transactions yet"),
            ("rules", "No rules"),
        ]:
            page.go(view)
            page.see(".empty h2", text)
            assert page.accessibility() == [], view
        ControlClient(url, "secret").nodes[1].kill()
        page.go("cluster")
        page.see(".card.dead", "This node is down")
        page.see("nav .count.bad", "1 down")
        page.driver.execute_cdp_cmd("Network.enable", {})
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
        page.driver.execute_script("import('/dashboard/store.js').then((it) => it.connect())")
        page.see(".banner.bad", "The connection to the cluster is lost")
        page.driver.execute_cdp_cmd(
            "Network.emulateNetworkConditions",
            {**offline, "offline": False} | {"downloadThroughput": -1, "uploadThroughput": -1},
        )
        page.see("nav .foot", "live")
        page.gone(".banner.bad")


@pytest.mark.costly
def test_tasks_of_a_streams_application_are_shown(browser: Page, tmp_path: Path) -> None:
    up = ("-m", "anabranch.cli.main", "up", "--brokers", "1", "--port", "0", "--control", "127.0.0.1:0")
    with elsewhere(*up) as url:
        control = ControlClient(url)
        for topic in ("clicks", "counts"):
            control.ask("POST", "/v1/topics", {"topic": topic, "partitions": 2})
        (node,) = control.ask("GET", "/v1/nodes")
        words = ["streams", "examples/counts.py:topology", "--bootstrap-server", f"127.0.0.1:{node['port']}"]
        instance = [*words, "--application-id", "app", "--state-dir", str(tmp_path)]
        with subprocess.Popen(
            [sys.executable, "-m", "anabranch.cli.main", *instance], stdout=subprocess.DEVNULL
        ) as app:
            try:
                page = browser.at(url)
                page.open()
                page.go("groups")
                page.see(".member .who small", "active 0: 0, 1")
                assert page.accessibility() == []
            finally:
                app.terminate()
