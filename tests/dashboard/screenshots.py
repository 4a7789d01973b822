"""Takes screenshots of each view for the documents: `python -m tests.dashboard.screenshots` (`make screenshots`)."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

from anabranch.control.client import ControlClient
from tests.dashboard.chromium import Page, browser, why_missing
from tests.dashboard.lively import elsewhere
from tests.dashboard.test_views import SHOWN

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "dashboard"
SETTLED_S: Final = 1.5
"""Charts and lists draw a moment after what they show is there."""
TRAFFIC_S: Final = 25
LIMIT_BYTES: Final = 200_000


def take(page: Page, path: Path) -> None:
    """Keep what is shown now in a file."""
    time.sleep(SETTLED_S)
    path.write_bytes(page.driver.get_screenshot_as_png())


def photograph(page: Page, name: str) -> None:
    """Keep what is shown now for the documents."""
    path = FOLDER / f"{name}.png"
    take(page, path)
    assert path.stat().st_size < LIMIT_BYTES, f"{path} is too large for a page of the documents"
    print(f"wrote {path.relative_to(FOLDER.parents[1])} ({path.stat().st_size:,} bytes)")


def see(page: Page, view: str) -> None:
    """Go to a view, and wait for what is to be seen there."""
    page.go(view)
    for selector, text in SHOWN[view]:
        page.see(selector, text)


def views(page: Page, control: ControlClient) -> None:
    """Each view, with activity in it."""
    page.open()
    time.sleep(TRAFFIC_S)
    for view in ("lineage/orders", "groups", "transactions", "traffic", "rules", "events", "topics/clicks"):
        see(page, view)
        photograph(page, view.partition("/")[0])
    see(page, "zookeeper")
    page.click("▸ brokers")
    page.click("▸ ids")
    page.click("1", ".tree")
    page.see(".data", "listener_security_protocol_map")
    photograph(page, "zookeeper")
    control.nodes[2].freeze()
    control.nodes[3].kill()
    see(page, "cluster")
    page.see(".card.frozen", "frozen")
    page.see(".card.dead", "dead")
    photograph(page, "cluster")
    control.nodes[2].thaw()
    control.nodes[3].start()


def dialogs(page: Page, control: ControlClient) -> None:
    """The dialogs that have many fields."""
    order = '{"order": 42, "state": "paid", "items": [{"sku": "A1", "count": 2}, {"sku": "B7", "count": 1}]}'
    control.produce(
        "clicks", order, key="42", partition=0, headers=[("trace", "ab-cd"), ("content-type", "application/json")]
    )
    page.open("topics/clicks")
    page.click("Records of clicks-0")
    page.type("find-header", "trace=ab")
    page.click("Find", "dialog")
    page.see("dialog .pill", "2 headers")
    page.click(page.see("dialog td button").accessible_name, "dialog")
    page.see("dialog .found pre", '"order": 42')
    photograph(page, "records")
    page.click("Close", "dialog")
    for view, button, name in (("rules", "New rule…", "rule"), ("cluster", "Clock…", "clock")):
        page.go(view)
        page.click(button)
        page.see("dialog button")
        photograph(page, name)
        page.click("Close", "dialog")
    page.go("cluster")
    page.click("Snapshots…")
    page.type("name", "before the merge")
    page.click("Take", "dialog")
    page.see("dialog td", "before the merge")
    photograph(page, "snapshots")
    page.click("Forget", "dialog")
    page.click("Close", "dialog")


def dark_and_small(page: Page) -> None:
    """The river at night, and in the hand."""
    page.scheme("dark")
    page.open("lineage/orders")
    page.see("svg.river .label", "cut at")
    photograph(page, "lineage-dark")
    page.size(390, 844, mobile=True)
    page.open("lineage/orders")
    page.see("svg.river .label")
    photograph(page, "phone")


def story(page: Page) -> None:
    """A story of the tour, at its gates."""
    page.open("tour")
    page.see(".story", "A split and a merge")
    next(one for one in page.find(".story") if "A split and a merge" in one.text).click()
    for number in (1, 2):
        page.see(".tour small", f"step {number} of 4")
        page.click("Go on", ".tour")
    page.see(".tour small", "step 3 of 4")
    page.see(".gate", "It opens when")
    photograph(page, "tour")
    page.click("End the story", ".tour")
    page.gone(".tour")


def main() -> int:
    """Photograph all; exit status 1 if there is no browser."""
    reason = why_missing()
    if reason is not None:
        print(f"NO SCREENSHOTS: {reason}")
        return 1
    FOLDER.mkdir(exist_ok=True)
    with elsewhere() as url, browser() as page:
        views(page.at(url), ControlClient(url))
        dialogs(page.at(url), ControlClient(url))
        story(page.at(url))
        dark_and_small(page.at(url))
    return 0


if __name__ == "__main__":
    sys.exit(main())
