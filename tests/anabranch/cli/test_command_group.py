"""An unknown command in any group is answered with the one that was probably meant."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from anabranch.cli.command_group import SAME, CommandGroup
from anabranch.cli.main import cli


def groups(at: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Group]]:
    if isinstance(at, click.Group):
        yield path, at
        context = click.Context(at)
        for name in at.list_commands(context):
            found = at.get_command(context, name)
            assert found is not None
            yield from groups(found, (*path, name))


GROUPS = dict(groups())


@pytest.mark.parametrize("path", GROUPS, ids=" ".join)
def test_unknown_command_gets_nearest_suggestion(path: tuple[str, ...]) -> None:
    name = GROUPS[path].list_commands(click.Context(GROUPS[path]))[0]
    ran = CliRunner().invoke(cli, [*path, f"{name}x"])
    assert ran.exit_code == 2
    assert f"no such command '{name}x'; did you mean {name}?" in ran.output


@pytest.mark.parametrize("path", GROUPS, ids=" ".join)
def test_unknown_command_without_near_name_lists_all_commands(path: tuple[str, ...]) -> None:
    ran = CliRunner().invoke(cli, [*path, "qqqq"])
    assert ran.exit_code == 2
    assert all(name in ran.output for name in GROUPS[path].list_commands(click.Context(GROUPS[path])))


@pytest.mark.parametrize("name", SAME)
def test_name_from_another_tool_gets_our_name(name: str) -> None:
    ours = SAME[name]
    having = [path for path, group in GROUPS.items() if ours in group.list_commands(click.Context(group))]
    assert having
    for path in having:
        if name not in GROUPS[path].list_commands(click.Context(GROUPS[path])):
            ran = CliRunner().invoke(cli, [*path, name])
            assert f"no such command '{name}'; did you mean {ours}?" in ran.output


def test_every_group_suggests() -> None:
    assert len(GROUPS) > 10
    assert all(isinstance(one, CommandGroup) for one in GROUPS.values())
