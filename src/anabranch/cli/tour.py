"""`anabranch tour`: plays stories on a live cluster step by step, and checks their claims."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import click

from anabranch.cli import completion, shared_options
from anabranch.cli.context_store import CONTROL_DEFAULT, chosen_ca, chosen_token, is_from_context
from anabranch.cli.control import open_client, token, url

if TYPE_CHECKING:
    from rich.console import Console

    from anabranch.control.client import ControlClient
    from anabranch.control.tour_rows import StoryRow, TourRow

OWN_CLUSTER: Final = (
    *("-m", "anabranch.cli.main", "up", "--port", "0", "--control", "127.0.0.1:0"),
    *("--control-token", ""),  # the environment may have that of another cluster
)
STOP_S: Final = 20


@click.command(
    epilog="""\b
Examples:
  anabranch tour                               list the stories
  anabranch tour leader                        on a temporary cluster
  anabranch tour order --control http://127.0.0.1:9190       on a running cluster, with its dashboard
  anabranch tour --all --no-wait               all stories, as a test
  anabranch tour leader --own                  not on the cluster of the current context
"""
)
@click.argument("story", required=False, shell_complete=completion.stories)
@click.option("--all", "every", is_flag=True, help="Run all stories.")
@click.option("--wait/--no-wait", default=True, help="Wait for Enter between steps.")
@click.option("--own", is_flag=True, help="On a cluster of its own, whatever the current context is.")
@url
@token
@shared_options.CONTROL_CA
def command(story: str | None, every: bool, wait: bool, own: bool, url: str, token: str, ca_file: str) -> None:
    """Play the tour: a leader dies, a controller becomes a zombie, a topic splits and merges in order.

    Each story acts on a real cluster: one that was started with `up --control`, if --control or the current context
    names its control plane, or else a new one.
    """
    from_context = is_from_context(click.get_current_context(), "url")
    if own and not from_context:
        raise click.UsageError("write --own or --control, not both")
    if from_context and url != CONTROL_DEFAULT and not own:
        click.echo(f"on the cluster of the current context, {url}; --own starts a new cluster instead", err=True)
    is_remote = url != CONTROL_DEFAULT or not from_context
    with _client(url, token, ca_file) if is_remote and not own else _own_cluster() as control:
        stories = {one["story"]: one for one in control.tour.stories}
        if story is None and not every:
            _list(stories)
            return
        if story is not None and story not in stories:
            raise click.UsageError(f"there is no story {story}; there are {', '.join(stories)}")
        from rich.console import Console

        console = Console()
        held = [_tell(console, control, stories[one], wait=wait) for one in (stories if every else [str(story)])]
    if not all(held):
        raise click.ClickException("a claim of a story failed")


def _client(url: str, token: str, ca_file: str) -> contextlib.AbstractContextManager[ControlClient]:
    return open_client(url, chosen_token(token), chosen_ca(ca_file))


@contextlib.contextmanager
def _own_cluster() -> Iterator[ControlClient]:
    """Run a cluster of three brokers while the block runs."""
    with subprocess.Popen([sys.executable, *OWN_CLUSTER], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            if " control=" not in ready:
                raise click.ClickException("the cluster of the tour did not start")
            with open_client(ready.split(" control=")[1].strip(), "") as control:
                yield control
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _list(stories: Mapping[str, StoryRow]) -> None:
    width = max(map(len, stories))
    for name, one in stories.items():
        click.echo(f"{name:<{width}}  {one['title']}: {one['summary']}")
    click.echo("\nanabranch tour STORY runs one.")


def _tell(console: Console, control: ControlClient, story: StoryRow, *, wait: bool) -> bool:
    """Play a story; returns whether all its claims held."""
    from rich.rule import Rule

    console.print(Rule(f"[bold]{story['title']}[/bold]"))
    held = True
    for step in control.tour.play(story["story"]):
        _show(console, step)
        held = held and all(claim["holds"] for claim in step["claims"])
        if wait:
            console.input("[dim]press Enter [/dim]")
    return held


def _show(console: Console, step: TourRow) -> None:
    from rich.markup import escape
    from rich.padding import Padding

    console.print(f"\n[bold cyan]{step['number']}/{step['steps']}[/bold cyan]  [bold]{escape(step['title'])}[/bold]")
    console.print(Padding(escape(step["text"]), (0, 0, 0, 5)), highlight=False, width=min(console.width, 104))
    for deed in step["deeds"]:
        console.print(f"     [dim]$[/dim] [green]{escape(deed['python'])}[/green]", highlight=False)
    for claim in step["claims"]:
        mark = "[green]✓[/green]" if claim["holds"] else "[bold red]✗[/bold red]"
        console.print(f"     {mark} {escape(claim['text'])}", highlight=False)
    console.print(f"     [dim]the dashboard shows it at #/{escape(step['look'])}[/dim]", highlight=False)
