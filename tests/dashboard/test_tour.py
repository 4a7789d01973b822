"""The six stories run from start to end in the page, and their claims hold."""

from __future__ import annotations

import pytest

from tests.dashboard.chromium import Page
from tests.dashboard.lively import elsewhere

SCROLL = "const main = document.querySelector('main'); main.scrollTo(0, 100); return main.scrollTop > 30"
pytestmark = pytest.mark.browser


def fold(page: Page) -> None:
    """Scroll, so that the banner becomes one line, and open it again."""
    page.size(1280, 400)
    page.until(lambda: page.driver.execute_script(SCROLL), "a view that scrolls")
    page.see(".tour.one-line")
    page.size()
    box = page.box(".tour")
    assert box["bottom"] - box["top"] < 60
    page.click("Show the step", ".tour")
    page.see(".tour p")


def go_on(page: Page, steps: int) -> int:
    """Go through a story; returns how many claims it made."""
    claims = 0
    for number in range(1, steps + 1):
        page.see(".tour small", f"step {number} of {steps}")
        assert not page.find(".tour .error")
        assert not page.find(".tour .no"), page.see(".tour").text
        claims += len(page.find(".tour .yes"))
        page.see("main h1")
        page.click("Finish" if number == steps else "Go on", ".tour")
    page.see(".tour", "The end")
    page.click("Close", ".tour")
    page.gone(".tour")
    return claims


@pytest.mark.costly
def test_every_tour_runs_in_browser(browser: Page) -> None:
    up = ("-m", "anabranch.cli.main", "up", "--port", "0", "--control", "127.0.0.1:0")
    with elsewhere(*up) as url:
        page = browser.at(url)
        page.open("tour")
        page.see(".story")
        titles = [(one.text.split("\n")[0], int(one.text.split("\n")[-1].split()[0])) for one in page.find(".story")]
        assert len(titles) == 6
        for number, (title, steps) in enumerate(titles):
            page.go("tour")
            page.see(".story", title)
            page.find(".story")[number].click()
            page.see(".tour small", f"step 1 of {steps}")
            if number == 0:
                page.see(".lane")
                fold(page)
            assert go_on(page, steps) > 0, title
        assert page.complaints() == []
