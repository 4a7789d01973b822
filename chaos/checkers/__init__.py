"""Checkers of a history: each yields one line per violation of its rule.

| letter | module | what is compared |
|---|---|---|
| A | `data_plane` | what was sent with what is stored and was delivered (Jepsen's Kafka workload) |
| A | `answers` | the error codes of answers with what their APIs allow (Kafka's response classes) |
| A | `groups` | what members of a group read with what they committed (Jepsen's Kafka workload) |
| A | `shares` | what members of a share group received with what they acknowledged and brokers stored (KIP-932) |
| A | `transactions` | what transactions wrote, read and committed with how they ended (Jepsen, KIP-98, KIP-447) |
| B | `order` | the order of one key's records across resizes (KIP-253) |
| B | `resizes` | what was done about a resize with what its invariants allow (`invariants` names them) |
| C | `brokers` | the state in brokers and controllers with the actual state (TLA+, KIP-903) |

A checker's definition is its docstring; deliberate exceptions are documented where they are made. A new checker is a
function and a row in the `CHECKERS` of its module, with a smallest bad history and a near miss in
`tests/chaos/checkers`.
"""

from __future__ import annotations

from typing import Final

from anabranch.chaos.checkers import answers, brokers, data_plane, groups, order, resizes, shares, transactions
from anabranch.chaos.checkers.shared import Checker
from anabranch.chaos.history import History

CHECKERS: Final[dict[str, Checker]] = {
    **data_plane.CHECKERS,
    **answers.CHECKERS,
    **groups.CHECKERS,
    **shares.CHECKERS,
    **transactions.CHECKERS,
    **order.CHECKERS,
    **resizes.CHECKERS,
    **brokers.CHECKERS,
}


def judge(history: History) -> list[str]:
    """Return every violation, prefixed with the name of its checker."""
    found = [
        f"{name}: {line}"
        for name, check in CHECKERS.items()
        if history.complete or name[0] == "C"  # the others compare with the final logs
        for line in check(history)
    ]
    return [*(f"run: {line}" for line in history.failures), *found]
