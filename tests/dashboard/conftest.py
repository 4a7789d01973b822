"""A lively cluster for the tests of a module, and one browser for all; loudly none where there is no Chromium."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

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


@pytest.fixture(scope="session")
def browser(_chromium: None) -> Iterator[Page]:
    from tests.dashboard.chromium import browser

    with browser() as page:
        yield page


@pytest.fixture
def page(browser: Page, lively: str) -> Page:
    return browser.at(lively)
