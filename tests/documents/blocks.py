"""Code blocks of pages: files, commands with their output, and their requirements.

Comments above a block say what the block itself does not show:

    <!-- needs: curl -->          the block is skipped, loudly, where this is missing
    <!-- file: handed.jsonl -->   the block is the content of this file
    <!-- numbers vary -->         other numbers in the output are right, too
    <!-- status: 0 or 1 -->       the last command of the block ends with one of these exit statuses
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

MARK: Final = re.compile(r"<!-- (needs|file|status): (.+) -->$|<!-- (numbers vary) -->$")
NAMED: Final = re.compile(r"# ([\w.-]+\.(?:py|toml|ini|properties))\n")
TIME: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:[\d.]+Z"
VARYING: Final = re.compile(
    rf"(?P<time>{TIME})|(?P<dots>\.\.\.)|(?P<decimal>\d+\.\d+)|(?P<number>\d[\d,]*)|(?P<gap> +)"
)
"""What of a shown line other output may replace."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command at a prompt, and the output that the page shows below it."""

    typed: str
    shown: str


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    language: str
    code: str
    line: int
    """The line of its opening fence."""
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def needs(self) -> list[str]:
        """The names of what has to be there before the block can run."""
        return self.marks["needs"].split(", ") if "needs" in self.marks else []

    @property
    def file(self) -> str | None:
        """The file that the block is: a comment in its first line names it, or a mark."""
        if self.language == "ini":
            return "pytest.ini"
        named = NAMED.match(self.code)
        return named[1] if named else self.marks.get("file")

    @property
    def is_tests(self) -> bool:
        """Whether pytest runs it."""
        return self.language == "python" and re.search(r"^(async )?def test_", self.code, re.MULTILINE) is not None

    @property
    def commands(self) -> list[Command]:
        """The commands of a console block in their order, continued lines joined."""
        found = re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", self.code, re.MULTILINE)
        return [Command(typed, shown) for typed, shown in found]

    def allows(self, status: int, command: Command) -> bool:
        """Whether a command may end with this exit status: by default 0, or by an error or mark of the block."""
        if "status" in self.marks and command == self.commands[-1]:
            return str(status) in self.marks["status"].split(" or ")
        return (status != 0) == command.shown.startswith("Error: ")

    def output(self, command: Command) -> re.Pattern[str]:
        """What a command has to print."""
        return output_pattern(command.shown, numbers_vary="numbers vary" in self.marks)


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, each with the marks directly above it."""
    found: list[Block] = []
    marks: dict[str, str] = {}
    lines = enumerate(page.splitlines(keepends=True), 1)
    for number, line in lines:
        if mark := MARK.match(line.rstrip()):
            marks[mark[1] or mark[3]] = mark[2] or ""
        elif line.startswith("```"):
            code = []
            for _, inner in lines:
                if inner.startswith("```"):
                    break
                code.append(inner)
            found.append(Block(line[3:].strip(), "".join(code), number, marks))
            marks = {}
        elif line.strip():
            marks = {}
    return found


def output_pattern(shown: str, *, numbers_vary: bool = False) -> re.Pattern[str]:
    """Compile shown output: times, decimals and widths of gaps may differ, and `...` stands for anything."""
    lines = []
    for line in shown.splitlines():
        if line.strip() == "...":
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(_line_pattern(line.rstrip(), numbers_vary) + r" *\n")
    return re.compile("".join(lines))


def _line_pattern(line: str, numbers_vary: bool) -> str:
    def varied(found: re.Match[str]) -> str:
        patterns = {"time": TIME, "dots": ".*", "decimal": r"[\d,]+\.\d+", "gap": " +"}
        number = r"\d[\d,]*" if numbers_vary else re.escape(found[0])
        return patterns.get(found.lastgroup or "", number)

    parts, end = [], 0
    for found in VARYING.finditer(line):
        parts += [re.escape(line[end : found.start()]), varied(found)]
        end = found.end()
    return "".join((*parts, re.escape(line[end:])))
