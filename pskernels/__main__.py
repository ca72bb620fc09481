"""``python -m pskernels demo``, ``info`` and ``bench``."""

import argparse
import platform
from collections.abc import Sequence

import numpy
import scipy

import pskernels
from pskernels import _bench, _demo, _engine, _threads


def print_info() -> None:
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
        print(
            f"{api:<11}{library['internal_api']} {library['version'] or ''}, "
            f"{library['num_threads']} threads"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m pskernels", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, BLAS, OpenMP, SIMD level, threads")
    bench = commands.add_parser(
        "bench", help="sketches of a Gram matrix: time, peak memory and error"
    )
    demo = commands.add_parser(
        "demo", help="machines for several losses: time, certificate and test score"
    )
    for command in (bench, demo):
        command.add_argument("--n", type=int, default=10_000, help="points (10,000)")
        command.add_argument(
            "--s", type=int, default=100, help="rows of the sketch (100)"
        )
        command.add_argument("--threads", type=int, help="all by default")
    bench.add_argument("--d", type=int, default=10, help="features (10)")
    options = parser.parse_args(arguments)
    if options.command == "info":
        print_info()
    elif options.command == "demo":
        _demo.run(options.n, options.s, options.threads)
    else:
        _bench.run(options.n, options.d, options.s, options.threads)


if __name__ == "__main__":
    main()
