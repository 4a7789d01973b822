"""The dashboard of a cluster of processes shows its nodes, acts on them, and disables what is not possible there."""

from __future__ import annotations

import pytest

from anabranch.control.client import ControlClient
from tests.dashboard.chromium import Page
from tests.dashboard.lively import elsewhere

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.zookeeper]

UP = ("-m", "anabranch.cli.main", "up", "--processes", "--brokers", "2", "--port", "0", "--control", "127.0.0.1:0")
QUICK = ("--zookeeper", "local", "--config", "zookeeper.session.timeout.ms=2000")


@pytest.mark.costly
def test_processes_are_shown_and_killed_and_what_is_impossible_is_disabled(browser: Page) -> None:
    with elsewhere(*UP, *QUICK) as url:
        page, control = browser.at(url), ControlClient(url)
        control.create_topic("orders", 2, replicas=2)
        page.open()
        page.see("nav", "Topics")
        clock = page.until(lambda: [one for one in page.find("button") if one.text == "Clock…"], "the button")[0]
        page.until(lambda: not clock.is_enabled(), "the clock to be disabled")
        assert clock.get_attribute("title").startswith("processes have the time of their machine")
        assert page.find('button[aria-label="Cut from ZooKeeper, node 1"]')[0].is_enabled()
        page.click("Kill, node 2")
        page.see(".card.dead", "This node is down")
        control.wait_for(topic="orders", isr="1")
        page.click("Start, node 2")
        page.gone(".card.dead")
        control.wait_for(topic="orders", isr="2+", timeout_s=60)
        page.open("topics/orders")
        page.see("main", "2 partitions")
        page.go("topics")
        page.click("Records of orders")
        page.see("dialog", "0 records")
