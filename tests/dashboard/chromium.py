"""A headless Chromium, driven by Selenium, or the reason why there is none."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM: Final = ("/usr/lib/chromium/chromium", "chromium", "chromium-browser", "google-chrome")
DRIVER: Final = ("/usr/bin/chromedriver", "chromedriver")
FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--hide-scrollbars", "--force-color-profile=srgb", "--lang=en"),
)
WAIT_S: Final = 60
LOAD_S: Final = 30
"""Less than a page waits that finds all six connections to its host taken."""
SHOWN: Final = """
    const words = (one) => (one.innerText ?? one.textContent).trim();
    const seen = (one) =>
        one.checkVisibility({opacityProperty: true, visibilityProperty: true}) && one.getClientRects().length > 0;
    const all = (selector) => [...document.querySelectorAll(selector)].filter(seen);
"""
"""What a script can ask of the page: the elements that are displayed, and their text.

WebDriver's own commands for this take a message and 16 KB of script for each element.
"""
REFUSED: Final = "the server responded with a status of 4"
AXE: Final = Path(__file__).with_name("vendor") / "axe.min.js"


def found(names: tuple[str, ...]) -> str | None:
    """The first of these programs that there is."""
    return next((path for path in map(shutil.which, names) if path), None)


def why_missing() -> str | None:
    """Return what is missing; None if nothing is."""
    missing = [names[-1] for names in (CHROMIUM, DRIVER) if found(names) is None]
    return f"no {' and no '.join(missing)}; apt-get install chromium chromium-driver" if missing else None


class Page:
    """A page in a browser, as a person uses it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self.url = ""

    def at(self, url: str) -> Page:
        """Be about the cluster at this address, as if never used before."""
        self.driver.get("about:blank")
        self.url = url.rstrip("/")
        self.size()
        self.scheme("light")
        self.complaints()
        return self

    def size(self, width: int = 1280, height: int = 800, *, mobile: bool = False) -> None:
        """Be of this size."""
        told = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", told)

    def scheme(self, name: str) -> None:
        """Like light or dark."""
        features = {"prefers-color-scheme": name, "prefers-reduced-motion": "reduce"}  # motion keeps a processor busy
        told = {"features": [{"name": key, "value": value} for key, value in features.items()]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", told)

    def open(self, view: str = "cluster") -> None:
        """Load the page at a view, and wait until it is live."""
        self.driver.get(f"{self.url}/#/{view}")
        self.until(lambda: self.find("nav .dot.alive"), "the page to be live")

    def go(self, view: str) -> None:
        """Go to a view, as by a link."""
        self.driver.execute_script("location.hash = arguments[0]", f"#/{view}")

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until something is so."""
        wait = WebDriverWait(self.driver, WAIT_S, 0.05, (WebDriverException, IndexError))
        return wait.until(lambda _: condition(), f"waited in vain for {what}")

    def find(self, selector: str) -> list[WebElement]:
        """All that is there now."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def see(self, selector: str, text: str = "") -> WebElement:
        """Wait for an element with this text."""
        script = f"{SHOWN} return all(arguments[0]).find((one) => words(one).includes(arguments[1]))"
        return self.until(lambda: self.driver.execute_script(script, selector, text), f"{selector} with {text!r}")

    def gone(self, selector: str) -> None:
        """Wait until it is there no more."""
        self.until(lambda: not self.find(selector), f"{selector} to be gone")

    def click(self, text: str, within: str = "body") -> None:
        """Click the button with this text or label."""
        script = f"""{SHOWN}
            const named = (one) => [words(one), one.getAttribute("aria-label")].includes(arguments[1]);
            const found = all(arguments[0]).find((one) => !one.disabled && named(one));
            found?.scrollIntoView({{block: "center"}});
            return found;
        """

        def press() -> bool:
            one = self.driver.execute_script(script, f"{within} button", text)
            if one is not None:
                one.click()
            return one is not None

        self.until(press, f"a button {text!r}")

    def type(self, name: str, text: str, within: str = "dialog") -> None:
        """Write into the field of this name."""
        field = self.see(f"{within} [name='{name}']")
        field.clear()
        field.send_keys(text)

    def drag(self, origin: tuple[float, float], target: tuple[float, float]) -> None:
        """Press the mouse here, move it there, let it go."""
        for kind, (x, y) in (
            ("mousePressed", origin),
            ("mouseMoved", ((origin[0] + target[0]) / 2, (origin[1] + target[1]) / 2)),
            ("mouseMoved", target),
            ("mouseReleased", target),
        ):
            told = {"type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1}
            self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", told)

    def middle(self, selector: str, number: int = 0) -> tuple[float, float]:
        """Where the middle of something is."""
        script = "const b = arguments[0].getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]"
        x, y = self.driver.execute_script(script, self.find(selector)[number])
        return x, y

    def box(self, selector: str, number: int = 0) -> dict[str, float]:
        """The left, top, right and bottom of something, in pixels of the window."""
        script = "return arguments[0].getBoundingClientRect().toJSON()"
        box: dict[str, float] = self.driver.execute_script(script, self.find(selector)[number])
        return box

    def run(self, module: str, expression: str, *arguments: object) -> Any:
        """The value of an expression, in which `it` is a module of the page and `given` the arguments."""
        script = """
            const [module, ...given] = arguments;
            const done = given.pop();
            import(`/dashboard/${module}`).then((it) => done(%s), (error) => done(String(error)));
        """
        return self.driver.execute_async_script(script % expression, module, *arguments)

    def accessibility(self) -> list[str]:
        """What axe finds wrong with what is shown: one line each."""
        if not self.driver.execute_script("return !!window.axe"):
            self.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE.read_text()})
        script = """
            const done = arguments[arguments.length - 1];
            axe.run(document, {resultTypes: ["violations"]}).then(
                (found) => done(found.violations.flatMap((one) => one.nodes.map(
                    (node) => `${one.id}: ${node.target} ${node.failureSummary}`))),
                (error) => done([String(error)]));
        """
        return list(self.driver.execute_async_script(script))

    def complaints(self) -> list[str]:
        """Return new console warnings and errors, except refusals."""
        logs: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        said = [one["message"] for one in logs if one["level"] in ("SEVERE", "WARNING")]
        return [one for one in said if REFUSED not in one]

    def overflow(self) -> int:
        """By how many pixels something sticks out of the page on the right."""
        script = "const m = document.querySelector('main'); return m.scrollWidth - m.clientWidth"
        return int(self.driver.execute_script(script))


@contextlib.contextmanager
def browser(*flags: str) -> Iterator[Page]:
    """A page in a browser of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = found(CHROMIUM) or ""
        for flag in (*FLAGS, *flags, f"--user-data-dir={profile}", "--window-size=1280,800"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(found(DRIVER)))
        try:
            driver.set_script_timeout(WAIT_S)
            driver.set_page_load_timeout(LOAD_S)
            yield Page(driver)
        finally:
            driver.quit()
