"""Run the experiments of the paper and write a report.

    python -m bench.paper --all --quick     # 3 replicates, less than ten minutes
    python -m bench.paper --all             # 30 replicates, two to three hours
    python -m bench.paper table2            # some of figure1, table1, table2, theory

The results go to paper-report/, or --out.  A run that was stopped resumes when the
command is given again, unless the code has changed.  Data sets are looked for in the
folder that PSKERNELS_DATA names; bench/README.md lists them.
"""

import argparse
import sys
import time
from pathlib import Path

from bench.paper import figure1, published, report, table1, table2, theory
from bench.paper.runs import Run, hash_sources

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
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("paper-report"),
        help="folder of the report (paper-report)",
    )
    parser.add_argument("--fresh", action="store_true", help="do not resume")
    parser.add_argument(
        "--download", action="store_true", help="take rf2 and scm1d from OpenML"
    )
    options = parser.parse_args(arguments)
    named = set(EXPERIMENTS if options.all else options.experiments)
    if not named <= set(EXPERIMENTS) or not named:
        unknown = ", ".join(sorted(named - set(EXPERIMENTS)))
        problem = f"unknown experiment: {unknown}; " if unknown else ""
        parser.error(f"{problem}name some of {', '.join(EXPERIMENTS)}, or --all")
    options.experiments = [name for name in EXPERIMENTS if name in named]
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
    start = time.monotonic()
    settings = dict(quick=options.quick, sources=hash_sources())
    try:
        run = Run(options.out / "results.jsonl", settings, options.fresh)
    except OSError as error:
        sys.exit(f"--out {options.out} cannot be written: {error}")
    units = make_units(run, options)
    for (_, name, *sketch), why in run.missing.items():
        if not sketch:
            print(f"not run: {name}: {why}")
    try:
        run.execute(units)
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from here")
    if run.n_kept:
        print(f"{run.n_kept} units were there; --fresh computes them again")
    report.write(run, options.out, options.experiments, options.replicates)
    print(f"{options.out / 'report.md'}, after {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
