"""The contexts of a user: named clusters with their addresses and credentials. One context is current.

They are in one JSON file in the user's configuration directory, readable for that user alone: it may hold passwords.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Final

import click

from anabranch.protocol.suggestion import suggest
from anabranch.protocol.values import value
from anabranch.runtime.private_files import write_private_file

BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"
CONTROL_DEFAULT: Final = "http://127.0.0.1:9190"


@value
class Context:
    """One cluster: what commands use when their options do not name another."""

    bootstrap_servers: str = BOOTSTRAP_DEFAULT
    client_properties: Mapping[str, str] = field(default_factory=dict)
    control: str = CONTROL_DEFAULT
    control_token: str = ""
    control_ca: str = ""
    """The file of the CA of its control plane."""


@value
class Contexts:
    """All contexts by name, and the name of the current one."""

    by_name: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    def get(self, name: str) -> Context:
        """Return a context. Raises UsageError for an unknown name."""
        if name not in self.by_name:
            known = suggest(name, self.by_name) if self.by_name else "create one with `anabranch context create`"
            raise click.UsageError(f"there is no context {name}; {known}")
        return self.by_name[name]


def contexts_file() -> Path:
    """The file that has the contexts: `~/.config/anabranch/contexts.json` on Linux."""
    return Path(click.get_app_dir("anabranch")) / "contexts.json"


def read_contexts() -> Contexts:
    """Read the contexts; none if there is no file. Raises UsageError if the file is damaged."""
    path = contexts_file()
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return Contexts({name: Context(**one) for name, one in stored["contexts"].items()}, stored["current"])
    except FileNotFoundError:
        return Contexts()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise click.UsageError(f"the contexts in {path} cannot be read: {error!r}") from None


def write_contexts(contexts: Contexts) -> None:
    """Write the contexts, so that a reader sees the old file or the new one."""
    path = contexts_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    stored = {
        "current": contexts.current,
        "contexts": {name: asdict(one) for name, one in contexts.by_name.items()},
    }
    part = path.with_suffix(f".{os.getpid()}")
    try:
        write_private_file(part, json.dumps(stored, indent=2).encode())
        part.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()


def current_context() -> Context:
    """Return the current context, or that of a local cluster if none is current."""
    contexts = read_contexts()
    return Context() if contexts.current is None else contexts.get(contexts.current)


def is_from_context(ctx: click.Context, option: str) -> bool:
    """Whether an option was left out, so that its value is the current context's.

    Only then its credentials may be used: they must not be sent to a cluster that the options name.
    """
    return ctx.get_parameter_source(option) is click.core.ParameterSource.DEFAULT


def chosen_token(token: str) -> str:
    """The control token of this command: the given one, else the current context's if the control plane is its own."""
    if token or not is_from_context(click.get_current_context(), "url"):
        return token
    return current_context().control_token


def chosen_ca(ca_file: str) -> str:
    """The CA file of this command: the given one, else the current context's if the control plane is its own."""
    if ca_file or not is_from_context(click.get_current_context(), "url"):
        return ca_file
    return current_context().control_ca
