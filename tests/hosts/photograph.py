"""Photographs the dashboard of several machines: `python -m tests.hosts.photograph URL TOKEN_FILE PICTURE`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.dashboard.chromium import browser
from tests.dashboard.screenshots import take

UNTRUSTED: Final = "--ignore-certificate-errors"
"""The browser does not know the CA of the walk."""


def main(url: str, token_file: Path, picture: Path) -> None:
    """Log in, and keep what the view of the cluster shows."""
    with browser(UNTRUSTED) as opened:
        page = opened.at(url)
        page.driver.get(url)
        page.type("token", token_file.read_text().strip(), "form")
        page.click("Show the cluster")
        page.see("nav .foot", "live")
        for number in (1, 2, 3):
            page.see(".card", f"{number}")
        take(page, picture)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
