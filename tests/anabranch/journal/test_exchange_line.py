"""The one-line form of an exchange."""

from __future__ import annotations

from anabranch.journal.exchange_line import EXCHANGE_HEADINGS, exchange_line


def test_line_has_state_of_exchange() -> None:
    row = {
        "number": 7, "at": 1.5, "node": 2, "client_id": None, "api": "Fetch", "version": 12, "ms": None,
        "errors": [], "outcome": "open", "rules": ["gate"], "overruled": [],
    }  # fmt: skip
    assert " ".join(exchange_line(row).split()) == "7 1.500 node 2 - Fetch v12 open by gate"
    line = exchange_line(row)
    for heading, cell in [("node", "node 2"), ("client", "- "), ("request", "Fetch"), ("errors", "open")]:
        assert line.index(cell) == EXCHANGE_HEADINGS.index(heading)
    done = exchange_line({**row, "ms": 3.25, "outcome": "answered", "rules": [], "client_id": "app"})
    assert " ".join(done.split()) == "7 1.500 node 2 app Fetch v12 3.2 ms"
