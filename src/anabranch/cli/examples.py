"""The examples at the end of a command's help."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """Format an epilog of click in which each example keeps its line."""
    return "\b\nExamples:\n" + "".join(f"  {line}\n" for line in lines)
