"""Scenario files: events are performed, results are replaced, comments stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenario_text import NotUnderstood, Stage, main, phrase, retold, story_of


class Counter(Stage):
    """A stage with one number."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    @phrase("add NUMBER", "put NUMBER on top")
    def add(self, number: str) -> None:
        self.count += int(number)
        self.lines.append(f"now {self.count}")

    @phrase("remember REST, please")
    def remember(self, rest: str) -> None:
        self.lines.append(f"<{rest}>")

    @phrase("wait")
    def wait(self) -> None:
        pass


TOLD = """\
# A number grows.

given add 1

> add 2
  now 3
# and on
> wait
  nothing
? remember one, and two, please
  <one, and two>
"""


def test_what_is_shown_is_what_happens() -> None:
    assert retold(TOLD, Counter()) == TOLD
    assert story_of(TOLD) == ["A number grows."]


def test_old_effects_are_replaced_and_missing_ones_written() -> None:
    bare = "".join(line for line in TOLD.splitlines(True) if not line.startswith("  "))
    assert retold(bare, Counter()) == TOLD
    assert retold(TOLD.replace("now 3", "now 4\n  and more"), Counter()) == TOLD


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("> subtract 2", r"line 1: .*none of the phrases"),
        ("> add two", r"line 1: .*invalid literal"),
        ("add 2", r"line 1: .*begins with none of"),
    ],
)
def test_a_line_that_says_nothing_is_named(line: str, complaint: str) -> None:
    with pytest.raises(NotUnderstood, match=complaint):
        retold(line, Counter())


def test_the_command_shows_differences_and_writes_them_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "one.txt"
    path.write_text(TOLD.replace("now 3", "now 4"))
    assert main([], [path], Counter) == 1
    assert "-  now 4\n+  now 3\n" in capsys.readouterr().out
    assert main(["--write"], [path], Counter) == 0
    assert path.read_text() == TOLD
    assert main([], [path], Counter) == 0
    assert main(["--wrote"], [path], Counter) == 2
