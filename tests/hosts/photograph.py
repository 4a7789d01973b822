"""Photographs the dashboard of several machines: `python -m tests.hosts.photograph URL TOKEN_FILE PICTURE`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

from tests.dashboard.chromium import browser

SETTLED_S: Final = 1.5
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
        time.sleep(SETTLED_S)
        picture.write_bytes(page.driver.get_screenshot_as_png())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
