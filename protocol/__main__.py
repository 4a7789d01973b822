"""`python -m anabranch.protocol`: prints frames, the generated codecs, and the list of APIs."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from typing import Final

from anabranch.protocol.compiler import source_of
from anabranch.protocol.describe import describe_request, describe_response
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.registry import APIS, BY_NAME, Api

EXAMPLES: Final = """\
examples:
  python -m anabranch.protocol apis
      the APIs, their versions, and which are flexible
  python -m anabranch.protocol dump 00120000 00000001 0004 726f6f74
      a request: header, body and records, field by field
  tcpdump ... | python -m anabranch.protocol dump -
      the same, hex from standard input; a length prefix is recognised
  python -m anabranch.protocol dump --response Metadata 12 00000002 00 ...
      a response; it does not name its API
  python -m anabranch.protocol source Fetch 12
      the Python that was generated to decode and encode Fetch v12
"""


class Misuse(ValueError):
    """An unknown name, or invalid hex; the message lists valid values."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Returns the exit status: 1 when the bytes cannot be decoded."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        print(options.run(options))
    except Misuse as error:
        parser.error(str(error))
    except DecodeError as error:
        print(f"cannot decode: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m anabranch.protocol",
        description="Show frames, generated codecs, and the list of APIs.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    dump = commands.add_parser("dump", help="show a frame given in hex")
    dump.add_argument("hex", nargs="+", metavar="HEX", help="the frame, in any grouping; - reads standard input")
    dump.add_argument(
        "--response",
        nargs=2,
        metavar=("API", "VERSION"),
        help="decode a response of this API and version instead of a request",
    )
    dump.set_defaults(run=lambda options: explain(options.hex, options.response))
    source = commands.add_parser("source", help="show a generated codec")
    source.add_argument("api", metavar="API", help="name or key, such as Fetch or 1")
    source.add_argument("version", type=int, metavar="VERSION")
    source.set_defaults(run=_source)
    apis = commands.add_parser("apis", help="list APIs and versions")
    apis.set_defaults(run=_apis)
    return parser


def _api(text: str) -> Api:
    for api in APIS:
        if text.lower() == api.name.lower() or text == str(api.key):
            return api
    near = ", ".join(difflib.get_close_matches(text, BY_NAME) or [name for name in BY_NAME if text in name][:3])
    hint = f"did you mean {near}?" if near else "see: python -m anabranch.protocol apis"
    raise Misuse(f"unknown API {text!r}; {hint}")


def _version(api: Api, version: int) -> int:
    if not 0 <= version <= api.last_version:
        raise Misuse(f"{api.name} has versions 0 to {api.last_version}, not {version}")
    return version


def explain(words: Sequence[str], response: Sequence[str] | None) -> str:
    """Format a hex frame field by field; "-" is standard input. `response`: the API and version that it answers.

    Raises Misuse for invalid hex and for an unknown API or version, DecodeError for an invalid frame.
    """
    text = sys.stdin.read() if list(words) == ["-"] else "".join(words)
    try:
        frame = bytes.fromhex("".join(text.replace("0x", "").replace(":", "").split()))
    except ValueError as error:
        raise Misuse(f"the frame is not hex: {error}") from None
    if response is None:
        return describe_request(frame)
    name, version = response
    api = _api(name)
    if not version.isdecimal():
        raise Misuse(f"{version!r} is not a version; {api.name} has 0 to {api.last_version}")
    return describe_response(frame, api, _version(api, int(version)))


def _source(options: argparse.Namespace) -> str:
    api = _api(options.api)
    version = _version(api, options.version)
    return "\n\n".join(
        f"# {message.__name__} v{version}\n\n{source_of(message, version)}" for message in (api.request, api.response)
    )


def _apis(options: argparse.Namespace) -> str:
    lines = [f"{'key':>5}  {'name':<36}{'versions':<10}flexible"]
    for api in APIS:
        flexible = "never" if api.flexible_from is None else f"from v{api.flexible_from}"
        lines.append(f"{api.key:>5}  {api.name:<36}{f'0-{api.last_version}':<10}{flexible}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
