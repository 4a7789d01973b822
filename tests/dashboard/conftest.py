"""A busy cluster for the tests of a module, and one browser for all; without Chromium the tests are skipped loudly."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from anabranch.control.pages import page_file

if TYPE_CHECKING:
    from tests.dashboard.chromium import Page


def why_missing() -> str | None:
    if importlib.util.find_spec("selenium") is None:
        return "no selenium; pip install -e '.[dev]'"
    from tests.dashboard import chromium

    return chromium.why_missing()


@pytest.fixture(autouse=True, scope="session")
def _chromium() -> None:
    reason = why_missing()
    if reason is not None:
        pytest.skip(f"NO BROWSER, the dashboard is not tried: {reason}")


@pytest.fixture(scope="module")
def lively() -> Iterator[str]:
    from tests.dashboard.lively import elsewhere

    with elsewhere() as url:
        yield url


@pytest.fixture(scope="package")
def browser(_chromium: None) -> Iterator[Page]:
    """Ends with these tests: an open page keeps a processor busy."""
    from tests.dashboard.chromium import browser

    with browser() as page:
        yield page


@pytest.fixture
def page(browser: Page, lively: str) -> Page:
    return browser.at(lively)


class PageFiles(BaseHTTPRequestHandler):
    """Serves the files of the page without a cluster."""

    def do_GET(self) -> None:
        content, kind = page_file(self.path.removeprefix("/dashboard/")) or (b"", "text/plain")
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="session")
def files() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), PageFiles) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def modules(browser: Page, files: str) -> Page:
    """A blank page that can import the pure modules of the dashboard."""
    browser.at(files).driver.get(f"{files}/dashboard/blank.txt")
    return browser
