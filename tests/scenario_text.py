"""Scenario files: events and a state machine's decisions as text, written manually and run by a test.

    # Comments tell the story, and why it matters.
    given brokers 1,2,3

    > broker 1 dies
      disconnect 1
      write lose: orders-0 leader 2 epoch 1 isr 2

    ? partition orders-0
      orders-0 leader 2 epoch 1 isr 2, version 1

A line that begins with `given` prepares something and shows nothing. After `>` comes an event, after `?` a question.
The indented lines below are what the machine did, or the answer. `retold` runs the events again and puts what comes out
now in place of the indented lines, so a scenario holds as long as the text stays the same.

What may be said is declared by a `Stage`: `@phrase("broker BROKER dies")` on a method. A word in capitals stands for
any one word, REST at the end for the rest of the line.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

Method = TypeVar("Method", bound=Callable[..., None])

GIVEN: Final = "given "
EVENT: Final = "> "
QUESTION: Final = "? "
INDENT: Final = "  "


class NotUnderstood(Exception):
    """A line of a scenario that the stage does not know, or that is invalid now."""


def phrase(*forms: str) -> Callable[[Method], Method]:
    """Let a method of a `Stage` be called by lines of these forms; its arguments are the words in capitals, as text."""

    def declare(method: Method) -> Method:
        method.__dict__["forms"] = forms
        return method

    return declare


def pattern(form: str) -> re.Pattern[str]:
    """What a form matches: `broker BROKER dies` is `broker (\\S+) dies`."""
    return re.compile(re.sub(r"[A-Z]{2,}", lambda word: "(.+)" if word[0] == "REST" else r"(\S+)", re.escape(form)))


class Stage:
    """A state machine with its surroundings; methods marked with `phrase` are the phrases of a scenario."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        """What the present phrase has shown so far."""

    @classmethod
    def forms(cls) -> dict[str, str]:
        """Every form that a line may have, with the name of the method that it calls."""
        methods = [(name, getattr(cls, name)) for name in dir(cls)]
        return {form: name for name, method in methods for form in getattr(method, "forms", ())}

    def perform(self, said: str) -> list[str]:
        """Perform a line, without its `>`, `?` or `given`. Returns the shown lines. Raises NotUnderstood if no form
        matches.
        """
        self.lines = []
        for form, name in self.forms().items():
            matched = pattern(form).fullmatch(said)
            if matched is not None:
                method: Callable[..., Any] = getattr(self, name)
                method(*matched.groups())
                return self.lines
        known = difflib.get_close_matches(said, self.forms(), n=3, cutoff=0.3)
        raise NotUnderstood(f"{said!r} is none of the phrases; perhaps one of {known}?")


def retold(text: str, stage: Stage) -> str:
    """The scenario with what the machine does now below its events. Raises NotUnderstood with the line's number."""
    told: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(INDENT):
            continue  # what was shown when the file was written
        told.append(line.rstrip())
        if not line.strip() or line.startswith("#"):
            continue
        mark = next((one for one in (GIVEN, EVENT, QUESTION) if line.startswith(one)), None)
        if mark is None:
            raise NotUnderstood(f"line {number}: {line!r} begins with none of '#', 'given', '>' and '?'")
        try:
            shown = stage.perform(line.removeprefix(mark).strip())
        except (NotUnderstood, ValueError, KeyError) as error:
            raise NotUnderstood(f"line {number}: {line!r}: {error}") from error
        if mark != GIVEN:
            told += [INDENT + one for one in shown or ["nothing"]]
    return "\n".join(told) + "\n"


def story_of(text: str) -> list[str]:
    """The comment at the head of a scenario, without its marks."""
    lines = text.splitlines()
    head = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return [line.lstrip("# ") for line in lines[:head]]


def assert_retold(path: Path, stage: Stage, command: str) -> None:
    """Check that a scenario has a story and comes out as it is written; `command` shows the difference."""
    text = path.read_text()
    assert len(story_of(text)) >= 1, "tell first what happens, and why it matters"
    assert retold(text, stage) == text, f"python -m {command} shows it, --write accepts it"


def assert_phrases_known(stage: type[Stage], files: Iterable[Path], readme: Path) -> None:
    """Check that a README lists every phrase of a stage, and that a scenario uses it."""
    forms = set(stage.forms())
    listed = {line.split("`")[1] for line in readme.read_text().splitlines() if line.startswith("| `")}
    assert forms == listed - {"#", GIVEN, EVENT, QUESTION}
    said = [line.partition(" ")[2] for path in files for line in path.read_text().splitlines()]
    unused = {form for form in forms if not any(pattern(form).fullmatch(line) for line in said)}
    assert not unused, "a phrase that no scenario needs"


def main(arguments: list[str], files: Iterable[Path], make_stage: Callable[[], Stage]) -> int:
    """Compare every file with what the machine does now; `--write` rewrites those that differ. Returns an exit code."""
    write = arguments == ["--write"]
    if arguments and not write:
        print(f"unknown: {' '.join(arguments)}; there is --write, and nothing else", file=sys.stderr)
        return 2
    differing = 0
    for path in files:
        before = path.read_text()
        after = retold(before, make_stage())
        if before == after:
            continue
        differing += 1
        sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), after.splitlines(True), path.name, "now"))
        if write:
            path.write_text(after)
    print(f"{differing} scenarios {'rewritten' if write else 'differ'}")
    return int(bool(differing) and not write)
