"""A group of commands that answers an unknown name with the nearest command, or with all of them.

Names that other tools have for a command, such as `resize` for `topics alter`, are answered with ours.
"""

from __future__ import annotations

from typing import Final

import click

from anabranch.protocol.suggestion import suggest

SAME: Final = {
    "add-partitions": "alter",
    "commit": "reset",
    "grow": "alter",
    "info": "describe",
    "ls": "list",
    "merge": "alter",
    "new": "create",
    "partitions": "alter",
    "remove": "delete",
    "resize": "alter",
    "rm": "delete",
    "seek": "reset",
    "show": "describe",
    "shrink": "alter",
    "split": "alter",
}
"""Other tools' names -> ours."""


class CommandGroup(click.Group):
    """A group that suggests a command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown name, suggest one. Raises UsageError."""
        there = self.list_commands(ctx)
        if args and args[0] not in there and not args[0].startswith("-"):
            same = SAME.get(args[0])
            hint = f"did you mean {same}?" if same in there else suggest(args[0], there)
            raise click.UsageError(f"no such command '{args[0]}'; {hint}", ctx)
        return super().resolve_command(ctx, args)
