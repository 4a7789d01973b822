"""A blocking client for a cluster's fault rules, for synchronous Python tests.

with control.faults(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2) as rule:
    ...                                     # RuleNeverHit in the end, if no such request came
    rule.wait_hit()
"""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Unpack

from anabranch.faults.active_rule import RuleNeverHit
from anabranch.faults.rule import Rule
from anabranch.faults.rule_json import check_given, to_json
from anabranch.protocol.suggestion import suggest_arguments

if TYPE_CHECKING:
    from anabranch.faults.active_rule import RuleRow
    from anabranch.faults.rule_fields import RuleFields

Ask = Callable[..., Any]
PATIENCE_S: Final = 60.0


@suggest_arguments
@dataclass(slots=True)
class RuleClient:
    """One fault rule of the cluster."""

    _ask: Ask
    name: str
    _removed: RuleRow | None = None
    """The rule's last row, once it is removed."""

    @property
    def removed(self) -> bool:
        """Whether `remove` was called."""
        return self._removed is not None

    @property
    def hits(self) -> int:
        """The number of requests that the rule has hit."""
        return int(self.row()["hits"])

    @property
    def held(self) -> int:
        """The number of requests that wait for `release`."""
        return int(self.row()["held"])

    def row(self) -> RuleRow:
        """The rule as a row: `rule`, `met`, `hits`, `held`, `spent`; the final values if it is removed."""
        if self._removed is not None:
            return self._removed
        found: RuleRow = self._ask("GET", self._path)
        return found

    def wait_hit(self, n: int = 1, timeout_s: float = 30.0) -> None:
        """Wait until the rule has `n` hits. ControlError (408) on timeout."""
        words = urllib.parse.urlencode({"hits": n, "timeout": timeout_s})
        self._ask("GET", f"{self._path}/wait?{words}", patience_s=timeout_s + PATIENCE_S)

    def release(self) -> None:
        """Release the held requests; from now on the rule holds none."""
        self._ask("POST", f"{self._path}/release")

    def remove(self) -> RuleRow:
        """Remove the rule; returns its final row."""
        found: RuleRow = self._ask("DELETE", self._path)
        self._removed = found
        return found

    @property
    def _path(self) -> str:
        return f"/v1/faults/{urllib.parse.quote(self.name, safe='')}"


@suggest_arguments
class FaultsClient:
    """The fault rules of a cluster."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def add(self, rule: Rule | None = None, **fields: Unpack[RuleFields]) -> RuleClient:
        """Add a rule.

        Args:
            rule: The rule.
            **fields: Or its fields: api="Produce", error="REQUEST_TIMED_OUT".

        Raises:
            ControlError: The rule can never hit; the message suggests a correction.
            InvalidRule: It is given as a rule and by fields, or is no rule.
        """
        check_given(rule, fields)
        return RuleClient(self._ask, self._ask("POST", "/v1/faults", fields if rule is None else to_json(rule))["name"])

    def rows(self, *, removed: bool = False) -> list[RuleRow]:
        """Get every rule with its hits; optionally also the rules removed last."""
        found: list[RuleRow] = self._ask("GET", "/v1/faults?removed=true" if removed else "/v1/faults")
        return found

    def clear(self) -> None:
        """Remove all rules."""
        self._ask("DELETE", "/v1/faults")

    @contextlib.contextmanager
    def __call__(
        self, rule: Rule | None = None, *, optional: bool = False, **fields: Unpack[RuleFields]
    ) -> Iterator[RuleClient]:
        """A block during which a rule is active. Raises RuleNeverHit at its end without a hit, unless `optional`."""
        added = self.add(rule, **fields)
        try:
            yield added
        finally:
            row = self._end(added)
        if row and not row["hits"] and not optional:
            about = f"but matched {row['met']} requests" if row["met"] else "no request matched it"
            raise RuleNeverHit(f"rule {added.name} has no hits: {about}")

    def _end(self, added: RuleClient) -> RuleRow | None:
        """Remove the rule of a block. None if the test has removed it, and so knows its hits.

        A reset of the cluster has removed it, too, but not for the test's purpose.
        """
        if added.removed:
            return None
        found = [row for row in self.rows(removed=True) if row["name"] == added.name]
        if found and not found[-1]["removed"]:
            return added.remove()
        return found[-1] if found else None
