"""``rangewatch bench``: measures the indexes against each other and against libraries."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli.errors import FAILED, USAGE, CliError

if TYPE_CHECKING:
    from service.bench.experiment import Experiment
    from service.bench.run import Outcome

_SEED = 20240229


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure the indexes, against each other and against libraries",
        description="Runs experiments: workloads are seeded, contenders take turns in one process, and all"
        " must give the same answers; the exit code is 1 if they do not, or if one fails. Tables go to"
        " stdout, progress to stderr.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="experiments, or patterns such as 'cei-*'; all"
    )
    parser.add_argument("--list", action="store_true", help="name the experiments and what they ask, and end")
    parser.add_argument(
        "--scale",
        choices=("quick", "full"),
        default="full",
        help="quick shows within seconds that it runs; full (the default) is what is published",
    )
    parser.add_argument("--seed", type=int, default=_SEED, metavar="N", help=f"of the workloads ({_SEED})")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write a page and a plot an experiment there")
    parser.add_argument("--json", action="store_true", help="print results as NDJSON instead of tables")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Experiments compile kernels and bring libraries; the other commands start without them.
    try:
        from service.bench.experiments import experiments
        from service.bench.run import UnknownExperiment, chosen

        known = experiments()
    except ModuleNotFoundError as error:
        raise CliError(f"{error.name} is not installed; the extra `bench` brings it", USAGE) from error
    try:
        selected = chosen(known, args.names)
    except UnknownExperiment as error:
        raise CliError(f"{error}; --list names them", USAGE) from error
    if args.list:
        for experiment in selected:
            print(f"{experiment.name:<28} {experiment.question}")
        return 0
    return _measured(args, known, selected)


def _measured(args: argparse.Namespace, known: Sequence[Experiment], selected: Sequence[Experiment]) -> int:
    from service.bench.experiment import Scale
    from service.bench.report import write_index
    from service.bench.run import run

    # Lines and no moving bar: what draws a bar is a thread that would take its share of the processor.
    def begun(experiment: Experiment) -> None:
        print(f"{experiment.name}: {experiment.question}", file=sys.stderr, flush=True)

    failed = 0
    for outcome in run(selected, Scale(args.scale), args.seed, begun=begun):
        print(f"{outcome.experiment.name}: {outcome.seconds:.1f} s", file=sys.stderr, flush=True)
        failed += outcome.result is None
        _show(args, outcome)
    if args.out is not None:
        write_index(known, args.out)
    return FAILED if failed else 0


def _show(args: argparse.Namespace, outcome: Outcome) -> None:
    from service.bench.measure import machine
    from service.bench.report import Circumstances, table, write

    experiment, result = outcome.experiment, outcome.result
    if result is None:
        print(f"{experiment.name}: {outcome.failure}", file=sys.stderr)
        return
    if args.json:
        print(json.dumps(_record(outcome), ensure_ascii=False), flush=True)
    else:
        agrees = "confirmed" if result.agrees else "not confirmed"
        print(f"\n{experiment.name} ({agrees}): {result.verdict}\n\n{table(result.rows)}", flush=True)
        print(f"\ndigest of the answers {result.digest}", flush=True)
    if args.out is not None:
        command = shlex.join(
            ["rangewatch", "bench", experiment.name, "--scale", args.scale, "--seed", str(args.seed)]
        )
        write(experiment, result, Circumstances(command, _today(), machine()), args.out)


def _record(outcome: Outcome) -> dict[str, Any]:
    experiment, result = outcome.experiment, outcome.result
    assert result is not None
    return {
        "name": experiment.name,
        "agrees": result.agrees,
        "verdict": result.verdict,
        "rows": list(result.rows),
        "digest": result.digest,
        "seconds": round(outcome.seconds, 3),
    }


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
