"""The command ``pskernels``: demo, fit, predict, bench and info.

pskernels demo                                  what it does, in a minute
pskernels fit data.csv --target y               a model of a table
pskernels predict model.npz new.csv             its predictions
pskernels bench                                 sketches beside a dense one
pskernels info                                  versions, threads, SIMD level
"""

import argparse
import os
import platform
import sys
from collections.abc import Callable
from typing import NoReturn

import numpy
import scipy

import pskernels
from pskernels import _bench, _demo, _engine, _threads

NEEDED = "pip install scikit-learn pandas pyarrow matplotlib"


def print_info(options: argparse.Namespace) -> None:
    """Print versions, and what computing will run on."""
    from threadpoolctl import threadpool_info

    openmp = _threads.OPENMP or "not compiled in"
    print(f"pskernels  {pskernels.__version__}")
    print(f"python     {platform.python_version()}, {platform.platform()}")
    print(f"numpy      {numpy.__version__}")
    print(f"scipy      {scipy.__version__}")
    print(f"compiler   {_threads.COMPILER}")
    print(f"OpenMP     {openmp}")
    print(f"SIMD       {_engine.simd_level()}")
    print(
        f"threads    {_threads.resolve_n_threads(None)} by default, "
        f"{_threads.available_cpus()} CPUs available"
    )
    for library in threadpool_info():
        api = "BLAS" if library["user_api"] == "blas" else library["user_api"]
        version = f" {library['version']}" if library["version"] else ""
        kind = library.get("architecture")  # what it takes the processor for
        print(
            f"{api:<11}{library['internal_api']}{version}"
            f"{f' ({kind})' if kind else ''}, {library['num_threads']} threads"
        )


def run_demo(options: argparse.Namespace) -> None:
    _demo.run(options.n, options.threads, options.plot)


def run_bench(options: argparse.Namespace) -> None:
    _bench.run(options.n, options.d, options.s, options.threads)


def run_fit(options: argparse.Namespace) -> None:
    from pskernels import _fit

    _fit.run_fit(options)


def run_predict(options: argparse.Namespace) -> None:
    from pskernels import _fit

    _fit.run_predict(options)


def make_parser() -> argparse.ArgumentParser:
    """Make the parser; each command has a function of its options."""
    parser = argparse.ArgumentParser(
        prog="pskernels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"pskernels {pskernels.__version__}"
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def add(
        name: str, run: Callable[[argparse.Namespace], None], text: str
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    demo = add("demo", run_demo, "what it does, beside what one would take otherwise")
    demo.add_argument("--n", type=int, default=2500, help="points (2,500)")
    demo.add_argument("--threads", type=int, help="all by default")
    demo.add_argument(
        "--plot", default="pskernels-demo.png", help="file (pskernels-demo.png)"
    )

    fit = add("fit", run_fit, "fit a model to a CSV or Parquet file")
    fit.add_argument("file", help="CSV or Parquet, the first line of names")
    fit.add_argument("--target", required=True, help="the column to predict")
    fit.add_argument("--quantiles", help="levels, such as 0.1,0.5,0.9")
    fit.add_argument("--classes", action="store_true", help="numbers are classes")
    fit.add_argument("--categories", help="columns of categories: a,b")
    fit.add_argument("--leave-out", help="columns that are not used: a,b")
    fit.add_argument("--budget", default="30 s", help="time for the fit (30 s)")
    fit.add_argument(
        "--test", type=float, default=0.2, help="share of rows for scores (0.2), or 0"
    )
    fit.add_argument("--seed", type=int, default=0)
    fit.add_argument("--out", default="model.npz", help="file (model.npz)")
    fit.add_argument("--plot", help="a picture of predictions: model.png")
    fit.add_argument("--quiet", action="store_true", help="no progress")

    predict = add("predict", run_predict, "predict the rows of a file by a model")
    predict.add_argument("model", help="what fit has written")
    predict.add_argument("file", help="CSV or Parquet")
    predict.add_argument("--keep", help="columns of the file to write as well: id,name")
    predict.add_argument("--out", help="CSV file; else they are printed")

    bench = add("bench", run_bench, "sketches of a Gram matrix: time, memory, error")
    bench.add_argument("--n", type=int, default=10_000, help="points (10,000)")
    bench.add_argument("--d", type=int, default=10, help="features (10)")
    bench.add_argument("--s", type=int, default=100, help="rows of the sketch (100)")
    bench.add_argument("--threads", type=int, help="all by default")

    add("info", print_info, "versions, BLAS, OpenMP, SIMD level, threads")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Run a command; what is wrong with its input is told in a line."""
    options = make_parser().parse_args(arguments)
    try:
        options.run(options)
        sys.stdout.flush()
    except ImportError as error:
        if error.name not in ("pandas", "sklearn", "matplotlib", "pyarrow"):
            raise
        _fail(options, f"{error}: {NEEDED}")
    except KeyboardInterrupt:
        print(f"\npskernels {options.command}: stopped", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except FileNotFoundError as error:
        _fail(options, f"there is no file {error.filename}")
    except (ValueError, OSError) as error:
        _fail(options, error)


def _fail(options: argparse.Namespace, error: object) -> NoReturn:
    print(f"pskernels {options.command}: {error}", file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    main()
