"""Run the experiments of the paper and write a report.

    python -m bench.paper --all --quick     # 3 replicates, less than ten minutes
    python -m bench.paper --all             # 30 replicates, about two hours
    python -m bench.paper table2            # some of figure1, table1, table2, theory

The results go to paper-report/, or --out; a run that was stopped resumes.
"""

import argparse
import time
from pathlib import Path

import pskernels as psk
from bench.paper import figure1, published, report, table1, table2, theory
from bench.paper.runs import Run

EXPERIMENTS = ("figure1", "table1", "table2", "theory")
QUICK_REPLICATES = 3


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m bench.paper",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "experiments", nargs="*", metavar="experiment", help=", ".join(EXPERIMENTS)
    )
    parser.add_argument("--all", action="store_true", help="all experiments")
    parser.add_argument(
        "--quick", action="store_true", help="3 replicates, coarser grids for the folds"
    )
    parser.add_argument("--replicates", type=int, help="in place of 30, or of 3")
    parser.add_argument("--out", type=Path, default=Path("paper-report"))
    parser.add_argument("--fresh", action="store_true", help="do not resume")
    parser.add_argument(
        "--download", action="store_true", help="take rf2 and scm1d from OpenML"
    )
    options = parser.parse_args(arguments)
    if options.all:
        options.experiments = list(EXPERIMENTS)
    unknown = set(options.experiments) - set(EXPERIMENTS)
    if unknown or not options.experiments:
        parser.error(f"name some of {', '.join(EXPERIMENTS)}, or --all")
    if options.replicates is None:
        options.replicates = QUICK_REPLICATES if options.quick else published.REPLICATES
    if options.replicates < 1:
        parser.error(f"--replicates must be at least 1, got {options.replicates}")
    return options


def make_units(run, options):
    replicates, quick = options.replicates, options.quick
    makers = {
        "figure1": lambda: figure1.units(run, replicates, quick),
        "table1": lambda: table1.units(run, replicates, quick),
        "table2": lambda: table2.units(run, replicates, quick, options.download),
        "theory": lambda: theory.units(replicates, quick),
    }
    return [unit for name in options.experiments for unit in makers[name]()]


def main(arguments=None):
    options = parse(arguments)
    settings = dict(
        version=psk.__version__,
        experiments=options.experiments,
        replicates=options.replicates,
        quick=options.quick,
        download=options.download,
    )
    start = time.monotonic()
    run = Run(options.out / "results.jsonl", settings, options.fresh)
    if run.n_resumed:
        print(f"resumed: {run.n_resumed} units are there")
    run.execute(make_units(run, options))
    report.write(run, options.out, options.experiments)
    run.finish()
    print(f"{options.out / 'report.md'}, after {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
