"""The native extensions and their flags; everything else is in pyproject.toml.

Switches, read from the environment:
  PSKERNELS_NO_OPENMP=1   build without OpenMP (one thread)
  PSKERNELS_DEBUG=1       bounds checks, -O1 -g
"""

import os
import sys
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

NO_OPENMP = os.environ.get("PSKERNELS_NO_OPENMP") == "1"
DEBUG = os.environ.get("PSKERNELS_DEBUG") == "1"

# A compiler without OpenMP fails here, loudly, unless it was asked to do without.
if NO_OPENMP:
    omp_compile, omp_link = [], []
elif sys.platform == "darwin":
    omp_compile, omp_link = ["-Xpreprocessor", "-fopenmp"], ["-lomp"]
else:
    omp_compile, omp_link = ["-fopenmp"], ["-fopenmp"]

optimise = ["-O1", "-g"] if DEBUG else ["-O3"]
# The first two change no value: no floating-point exception or errno is ever read,
# and without them GCC leaves the square root and selections scalar.  -fopenmp-simd:
# sums may be vectorised where src/simd.h says so, threads or not.  -Wno-psabi:
# vectors are only passed to functions that are inlined.
simd_flags = ["-fno-trapping-math", "-fno-math-errno", "-fopenmp-simd"]
engine_flags = [*simd_flags, "-Wno-psabi"]

EXTENSIONS = {
    "pskernels._adam": (["src/_adam.pyx"], simd_flags),
    "pskernels._build_info": (["src/_build_info.pyx"], []),
    "pskernels._sketch": (["src/_sketch.pyx"], []),
    "pskernels._gram": (["src/_gram.pyx", "src/engine.c"], engine_flags),
    "pskernels._linear": (["src/_linear.pyx"], simd_flags),
    "pskernels._losses": (["src/_losses.pyx"], simd_flags),
}

# In `depends`, native files reach the sdist and trigger rebuilds.
native_files = sorted(glob("src/*.pyx") + glob("src/*.pxd") + glob("src/*.h"))

setup(
    ext_modules=cythonize(
        [
            Extension(
                name,
                sources,
                include_dirs=["src"],
                extra_compile_args=optimise + omp_compile + flags,
                extra_link_args=omp_link,
                depends=native_files,
            )
            for name, (sources, flags) in EXTENSIONS.items()
        ],
        include_path=["src"],
        build_dir="build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG,
            "wraparound": False,
            "initializedcheck": DEBUG,
            "nonecheck": False,
            "cdivision": True,
            "embedsignature": True,
        },
    )
)
