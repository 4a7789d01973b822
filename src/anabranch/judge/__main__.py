"""`python -m anabranch.judge`: judges the order of a topic and of deliveries. Exit status 1 is a violation."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from anabranch.judge.delivered_order import DeliveryOrder
from anabranch.judge.records import Delivery, read_lines
from anabranch.judge.stored_order import judge_stored
from anabranch.judge.verdict import Verdict

EXAMPLES = """examples:
  python -m anabranch.judge --bootstrap-servers 127.0.0.1:9092 --topic orders
      stored once, and in order
  python -m anabranch.judge --bootstrap-servers 127.0.0.1:9092 --topic orders --counts 4,8,5
      and in the partitions of its generations (`anabranch topics describe orders` shows the counts)
  python -m anabranch.judge --bootstrap-servers 127.0.0.1:9092 --topic orders \\
      --sent stored.jsonl --deliveries handed.jsonl
      nothing acknowledged is lost, all is delivered, and in order
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge, print the verdict, and return the exit status: 0, 1 for a violation, 2 without a verdict."""
    options = _options().parse_args(arguments)
    verdict = Verdict()
    try:
        _judge(options, verdict)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"no verdict: {error}\n")
        return 2
    sys.stdout.write("\n".join(verdict.lines()) + "\n")
    return 1 if verdict.violations else 0


def _judge(options: argparse.Namespace, verdict: Verdict) -> None:
    producers = not options.topic  # the stored records do not name theirs
    sent: list[Delivery] = [one for path in options.sent for one in read_lines(path, producers=producers)]
    stored, ranges = None, dict[int, range]()
    if options.topic:
        try:
            from anabranch.judge.topic_reader import read_topic, sequence_of
        except ImportError:
            raise ValueError("--topic needs confluent-kafka: pip install 'anabranch[audit]'") from None
        records, ranges = read_topic(
            options.bootstrap_servers, options.topic, sequence_of(options.sequence), dict(options.property)
        )
        starts = {partition: offsets.start for partition, offsets in ranges.items()}
        stored = judge_stored(verdict, records, counts=options.counts, sent=sent, starts=starts)
    if options.deliveries:
        order = DeliveryOrder(verdict, stored, ranges)
        for path in options.deliveries:
            order.follow(read_lines(path, producers=producers))
        order.end(sent)
    if not verdict.stored and not verdict.delivered and not verdict.violations:
        raise ValueError("nothing is stored, and nothing was delivered")


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m anabranch.judge",
        description=sys.modules[__name__].__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092", metavar="HOST:PORT")
    parser.add_argument("--topic", help="read this topic, of any Kafka cluster")
    parser.add_argument(
        "--counts", type=_counts, default=[], metavar="N,N,...", help="the partition counts of its generations"
    )
    parser.add_argument(
        "--sequence", default="header:sequence", metavar="RULE", help="header:NAME, or value:REGEX with one group"
    )
    parser.add_argument("--sent", type=Path, action="append", default=[], metavar="FILE", help="acknowledged records")
    parser.add_argument(
        "--deliveries", type=Path, action="append", default=[], metavar="FILE", help="deliveries of one group, in order"
    )
    parser.add_argument(
        "--property", type=_property, action="append", default=[], metavar="NAME=VALUE", help="of librdkafka"
    )
    return parser


def _counts(text: str) -> list[int]:
    counts = text.split(",") if text else []
    if not all(one.isdecimal() and int(one) for one in counts):
        raise argparse.ArgumentTypeError(f"write N,N,... with numbers from 1, not {text!r}")
    return [int(one) for one in counts]


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"write NAME=VALUE, not {text!r}")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
