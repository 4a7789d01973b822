"""Goal: /docs shows every operation to people, and sends what they fill in; a token is asked for once."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from anabranch.control.routes import ROUTES
from tests.dashboard.chromium import Page
from tests.dashboard.lively import elsewhere

pytestmark = pytest.mark.browser
PROXY = ("-m", "anabranch.cli.main", "proxy", "--port", "0", "--control", "127.0.0.1:0")
UP = ("-m", "anabranch.cli.main", "up", "--brokers", "1", "--port", "0", "--control", "127.0.0.1:0")


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with elsewhere(*UP, "--control-token", "secret") as url:
        yield url


def test_operations_are_shown_and_sent_after_a_login(browser: Page, guarded: str) -> None:
    page = browser.at(guarded)
    page.driver.get(f"{guarded}/docs")
    page.type("token", "other", within="form")
    page.click("Show the API")
    page.see("[role=alert]", "wrong token")
    page.type("token", "secret", within="form")
    page.click("Show the API")
    page.see("h1", "HTTP API")
    assert len(page.find(".operation")) == len(ROUTES)
    assert page.accessibility() == []

    page.driver.execute_script("location.hash = '#getNodes'")
    page.see("#getNodes .curl", "curl -H 'Authorization: Bearer TOKEN' http://")
    page.see("#getNodes .schema", "broker_epoch")
    page.click("Send", within="#getNodes")
    page.see("#getNodes h3", "Status 200")
    (node,) = json.loads(page.see("#getNodes .answer", "node").text)
    assert node["node"] == 1
    assert page.see("nav .foot a", "Dashboard").get_attribute("href") == f"{guarded}/"

    page.driver.execute_script("location.hash = '#createTopic'")
    page.type("body", '{"topic": "made", "partitions": 2}', within="#createTopic")
    page.see("#createTopic .curl", """-d '{"topic":"made","partitions":2}'""")
    page.click("Send", within="#createTopic")
    page.see("#createTopic .answer", '"topic": "made"')

    page.driver.execute_script("location.hash = '#readRecords'")
    page.type("topic", "nowhere", within="#readRecords")
    page.click("Send", within="#readRecords")
    page.see("#readRecords .answer", "there is no topic nowhere")
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        assert page.accessibility() == []
    assert page.overflow() <= 0

    page.see("nav input").send_keys("unheard of")
    page.see("main p", "No operation matches.")
    page.see("nav input").clear()
    page.see("nav input").send_keys("clock")
    page.until(
        lambda: (
            {one.get_attribute("id") for one in page.find(".operation")} == {"getClock", "changeClock", "shiftClock"}
        ),
        "three",
    )
    assert page.complaints() == []

    upstream = f"{node['host']}:{node['port']}"
    with elsewhere(*PROXY, "--upstream", upstream) as url:
        page.driver.get(f"{url}/docs")
        page.see("#getNodes")
        assert [one.text for one in page.find("nav .foot a")] == ["openapi.json"], "a proxy has no dashboard"
