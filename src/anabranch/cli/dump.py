"""`anabranch dump`: the bytes of one Kafka message, field by field."""

from __future__ import annotations

import click


@click.command(
    name="dump",
    epilog="""\b
Examples:
  anabranch dump 00120000 00000001 0004 726f6f74       a request
  anabranch dump --response Metadata 12 00000002 00 ...  a response; it does not name its API
  tcpdump ... | anabranch dump -                       hex from standard input
""",
)
@click.argument("hex_words", metavar="HEX...", nargs=-1, required=True)
@click.option(
    "--response", nargs=2, type=(str, str), metavar="API VERSION", help="The frame is a response to this API."
)
def command(hex_words: tuple[str, ...], response: tuple[str, str] | None) -> None:
    """Explain a frame given in hex, in any grouping; a length in front is recognised."""
    from anabranch.protocol.__main__ import Misuse, explain
    from anabranch.protocol.errors import DecodeError

    try:
        click.echo(explain(hex_words, response))
    except Misuse as error:
        raise click.UsageError(str(error)) from None
    except DecodeError as error:
        raise click.ClickException(f"cannot decode: {error}") from None
