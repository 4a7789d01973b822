"""Reads a command's options from a TOML file; options on the command line take precedence.

    brokers = 3
    control = "127.0.0.1:9190"
    control-journal = 1000

    [config]
    "num.partitions" = 4

A name is that of the option, and one that may be repeated takes a list; NAME=VALUE options take a table, too.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click

from anabranch.protocol.suggestion import suggest


def options_file(ctx: click.Context, _: click.Parameter, path: str | None) -> None:
    """Set the defaults of a command's options from a file; click calls it for an eager option."""
    if path is None:
        return
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--options {path}: {getattr(error, 'strerror', None) or error}") from None
    options = [one for one in ctx.command.params if isinstance(one, click.Option)]
    known = {name.removeprefix("--"): one for one in options for name in one.opts}
    defaults = {}
    for name, value in content.items():
        option = known.get(name.replace("_", "-"))
        if option is None or option.name is None or option.is_eager:
            raise click.UsageError(f"--options {path}: unknown option {name}; {suggest(name, known)}")
        defaults[option.name] = _convert(path, name, option, value)
    ctx.default_map = {**(ctx.default_map or {}), **defaults}


def _convert(path: str, name: str, option: click.Option, value: Any) -> Any:
    """Convert a value of the file to what click expects."""
    if isinstance(value, dict):
        if not option.multiple:
            raise click.UsageError(f"--options {path}: {name} is one value, not a table")
        return [f"{key}={_text(one)}" for key, one in value.items()]
    if option.is_flag and not isinstance(value, bool):
        raise click.UsageError(f"--options {path}: {name} is true or false, not {value!r}")
    if isinstance(value, list) != option.multiple:
        raise click.UsageError(f"--options {path}: {name} is {'a list' if option.multiple else 'one value'}")
    return value if option.is_flag else [str(one) for one in value] if option.multiple else str(value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
