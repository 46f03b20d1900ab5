"""``rangewatch tail``: the records of an output topic as they come, for a person or for a machine.

The embedded log is read through the service; Kafka is read as any consumer should: committed records only.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from service.cli.client import add_url, connected, send
from service.cli.errors import UNREACHABLE, USAGE, CliError
from service.cli.text import all_escaped
from service.log.topics import OUTPUTS
from service.settings import SettingsError, load_settings

if TYPE_CHECKING:
    from rich.text import Text

_PAGE = 1_000
_PAUSE_S = 0.3
_MARKERS = 100


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "tail",
        help="follow an output topic",
        description="Prints the last records of an output topic and those that follow.",
    )
    parser.add_argument("topic", choices=OUTPUTS)
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for machines")
    parser.add_argument(
        "--after",
        type=int,
        default=-10,
        metavar="N",
        help="begin at offset N; -N: N before the end (of each partition) (%(default)s)",
    )
    parser.add_argument("--once", action="store_true", help="stop at the end instead of following")
    parser.add_argument(
        "--log",
        metavar="kafka:HOST:PORT,...",
        help="read from Kafka instead of the service; its security comes from RANGEWATCH_KAFKA_... variables",
    )
    parser.add_argument("--topic-prefix", default="", metavar="TEXT", help="as the service has it, on Kafka")
    add_url(parser)
    parser.set_defaults(run=run)


class Tailed(NamedTuple):
    partition: int
    offset: int
    key: str | None
    value: Any


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    if args.log is None:
        records = _from_service(args)
    elif args.log.startswith("kafka:"):
        records = _from_kafka(args, args.log.removeprefix("kafka:"))
    else:
        raise CliError("--log must be kafka:HOST:PORT,...; the embedded log is read through --url", USAGE)
    console = Console(highlight=False, soft_wrap=True)
    for record in records:
        if args.json:
            print(json.dumps(record._asdict(), ensure_ascii=False), flush=True)
        else:
            console.print(line_of(args.topic, record.value))
    return 0


def _from_service(args: argparse.Namespace) -> Iterator[Tailed]:
    after = args.after
    with connected(args.url) as client:
        while True:
            page = send(
                client, "GET", f"/v1/topics/{args.topic}", params={"after": after, "limit": _PAGE}
            ).json()
            for record in page["records"]:
                yield Tailed(0, record["offset"], record["key"], record["value"])
            is_end, after = page["next"] == after, page["next"]
            if is_end:
                if args.once:
                    return
                time.sleep(_PAUSE_S)


def _from_kafka(args: argparse.Namespace, bootstrap: str) -> Iterator[Tailed]:
    import kafka
    from kafka.errors import KafkaError

    from service.log.kafka_security import client_options

    topic = args.topic_prefix + args.topic
    try:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            isolation_level="read_committed",
            enable_auto_commit=False,
            group_id=None,
            **client_options(load_settings({})),
        )
    except SettingsError as error:
        raise CliError(str(error), USAGE) from None
    except KafkaError as error:
        raise CliError(f"no Kafka broker answers at {bootstrap}: {error}", UNREACHABLE) from None
    try:
        partitions = [kafka.TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()]
        if not partitions:
            raise CliError(f"there is no topic {topic!r} at {bootstrap}; is --topic-prefix right?")
        consumer.assign(partitions)
        yield from _last(consumer, partitions, args.after)
        while not args.once:
            yield from _polled(consumer)
    except KafkaError as error:
        raise CliError(f"reading from {bootstrap} failed: {error}", UNREACHABLE) from None
    finally:
        consumer.close()


def _last(consumer: Any, partitions: list[Any], after: int) -> Iterator[Tailed]:
    """What is in the partitions now, from where it was asked for."""
    ends = consumer.end_offsets(partitions)
    begins = consumer.beginning_offsets(partitions)
    for partition, end in ends.items():
        # Some offsets are no records (ends of transactions): look back further, then keep what was asked for.
        start = after if after >= 0 else end + 2 * after - _MARKERS
        consumer.seek(partition, min(max(start, begins[partition]), end))
    kept: dict[int, deque[Tailed]] = {}
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        for record in _polled(consumer):
            if after >= 0:
                yield record
            else:
                kept.setdefault(record.partition, deque(maxlen=-after)).append(record)
    for _, records in sorted(kept.items()):
        yield from records


def _polled(consumer: Any) -> Iterator[Tailed]:
    for records in consumer.poll(timeout_ms=500).values():
        for record in records:
            key = None if record.key is None else record.key.decode(errors="replace")
            yield Tailed(record.partition, record.offset, key, json.loads(record.value))


def line_of(topic: str, record: dict[str, Any]) -> Text:
    """One record as a line for a person."""
    record = all_escaped(record)
    from rich.text import Text

    if topic == "joins":
        sides = " with ".join(f"{side['source']}/{side['stream_id']}" for side in record["events"])
        return Text.assemble((record["query"], "cyan"), " joins ", sides)
    if topic == "aggregates":
        return _aggregates(record)
    line = Text.assemble((f"{record['source']}/{record['stream_id'] or '?'}", "bold"), "  ")
    if topic == "dead_letter":
        original = record.get("value", record.get("value_b64", ""))
        line.append(record["reason"], "red")
        return line.append(f"  {record['detail']}: {original[:120]}")
    line = Text.assemble((_time(record["ts"]), "dim"), "  ", line)
    if topic == "matches":
        line.append(", ".join(record["queries"]), "cyan")
        if record.get("late"):
            line.append("  late", "yellow")
    else:
        for sign, ids, style in (("-", "leave", "red"), ("+", "enter", "green"), ("x", "cross", "yellow")):
            if record[ids]:
                line.append(f"{sign} {', '.join(record[ids])}  ", style)
        if record["reason"] != "event":
            line.append(f"({record['reason']})", "yellow")
    if record["attrs"]:
        line.append("  " + " ".join(f"{name}={value}" for name, value in record["attrs"].items()), "dim")
    return line


def _aggregates(record: dict[str, Any]) -> Text:
    from rich.text import Text

    line = Text.assemble((_time(record["ts"]), "dim"), "  ", (record["query"], "cyan"))
    line.append(f"  {record['source']}/{record['partition']}", "bold").append(f"  count={record['count']}")
    for name, numbers in record["of"].items():
        shown = " ".join(f"{key}={value}" for key, value in numbers.items() if value is not None)
        line.append(f"  {name}: {shown}", "dim")
    return line


def _time(ts: int) -> str:
    """A timestamp in UTC; years that a calendar does not have stay numbers."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ts // 1000))
    except (OverflowError, ValueError, OSError):
        return str(ts)
