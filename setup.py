"""The native extensions and their flags; everything else is in pyproject.toml.

Switches, read from the environment:
  PSKERNELS_NO_OPENMP=1   build without OpenMP (one thread)
  PSKERNELS_DEBUG=1       bounds checks, -O1 -g
  PSKERNELS_SANITIZE=...  what -fsanitize takes: address,undefined or thread, for
                          .ci/sanitize, which also says how to run such a build
  SOURCE_DATE_EPOCH=...   the date of all files in sdist and wheel, 1980-02-01 if unset

Builds of one commit are the same to the byte; .ci/reproduce checks it.
"""

import gzip
import os
import sys
import sysconfig
import tarfile
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.sdist import sdist

NO_OPENMP = os.environ.get("PSKERNELS_NO_OPENMP") == "1"
DEBUG = os.environ.get("PSKERNELS_DEBUG") == "1"
SANITIZE = os.environ.get("PSKERNELS_SANITIZE", "")

# A compiler without OpenMP fails here, loudly, unless it was asked to do without.
if NO_OPENMP:
    omp_compile, omp_link = [], []
elif sys.platform == "darwin":
    omp_compile, omp_link = ["-Xpreprocessor", "-fopenmp"], ["-lomp"]
else:
    omp_compile, omp_link = ["-fopenmp"], ["-fopenmp"]

# -g0: Python's own flags have -g, which writes the folder of the build into the files.
optimise = ["-O1", "-g"] if DEBUG else ["-O3", "-g0"]
sanitize = []
if SANITIZE:  # -g1: lines, which are what the reports name
    optimise = ["-O2", "-g1", "-fno-omit-frame-pointer"]
    sanitize = [f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=all"]
strip = ["-s"] * (sys.platform == "linux" and not (DEBUG or SANITIZE))
# The first two change no value: no floating-point exception or errno is ever read,
# and without them GCC leaves the square root and selections scalar.  -fopenmp-simd:
# sums may be vectorised where src/simd.h says so, threads or not.  -Wno-psabi:
# vectors are only passed to functions that are inlined.
simd_flags = ["-fno-trapping-math", "-fno-math-errno", "-fopenmp-simd"]
engine_flags = [*simd_flags, "-Wno-psabi"]

# What Cython gives all modules for their arrays, compiled once: half of the time.
SHARED = "pskernels._cyutility"

# The one that takes longest comes first: all cores compile, a module each.
EXTENSIONS = {
    "pskernels._gram": (["src/_gram.pyx", "src/engine.c"], engine_flags),
    "pskernels._linear": (["src/_linear.pyx"], engine_flags),
    "pskernels._adam": (["src/_adam.pyx"], simd_flags),
    "pskernels._build_info": (["src/_build_info.pyx"], []),
    "pskernels._factors": (["src/_factors.pyx"], engine_flags),
    "pskernels._guard": (["src/_guard.pyx"], []),
    "pskernels._sketch": (["src/_sketch.pyx"], []),
    "pskernels._losses": (["src/_losses.pyx"], simd_flags),
    SHARED: (["src/_cyutility.c"], []),
}
N_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2

# One wheel serves every Python from 3.11 on, by the stable ABI, which Pythons without a
# GIL do not have.
STABLE_ABI = not sysconfig.get_config_var("Py_GIL_DISABLED")
macros = [("PSK_DEBUG", str(int(DEBUG)))]
macros += [("Py_LIMITED_API", "0x030B0000")] * STABLE_ABI
wheel_tag = {"py_limited_api": "cp311"} if STABLE_ABI else {}

# Each kind of build has a folder of its own, or it would find the files of another one
# there, and take them for its own.
switches = (
    ["debug"] * DEBUG + ["serial"] * NO_OPENMP + SANITIZE.split(",") * bool(SANITIZE)
)
switches += ["abi3"] * STABLE_ABI
switches += map(os.path.basename, os.environ.get("CC", "").split()[:1])
BUILD = os.path.join("build", "-".join(switches) or "plain")

# In `depends`, native files reach the sdist and trigger rebuilds.
native_files = sorted(
    glob("src/*.pyx") + glob("src/**/*.pxd", recursive=True) + glob("src/*.h")
)

# setuptools reads it too, for the wheel.  A month after the first date that a zip file
# can hold, so that it is one in every time zone.
SOURCE_DATE = int(os.environ.setdefault("SOURCE_DATE_EPOCH", "318211200"))


def without_umask(mode):
    """Keep of a file's permissions only whether it can be executed."""
    return 0o755 if mode & 0o100 else 0o644


class ReproducibleWheel(bdist_wheel):
    def write_wheelfile(self, *args, **kwargs):
        super().write_wheelfile(*args, **kwargs)  # the last file before all are packed
        for folder, _, names in os.walk(self.bdist_dir):
            for path in (os.path.join(folder, name) for name in names):
                os.chmod(path, without_umask(os.stat(path).st_mode))


class ReproducibleSdist(sdist):
    def make_archive(self, base_name, format, *, base_dir, **kwargs):
        """Pack base_dir as .tar.gz, the one format that PEP 517 knows."""

        def without_builder(member):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = SOURCE_DATE
            member.mode = without_umask(member.mode)
            return member

        path = f"{base_name}.tar.gz"
        self.mkpath(os.path.dirname(path))
        with (
            gzip.GzipFile(path, "wb", mtime=SOURCE_DATE) as stream,
            tarfile.open(fileobj=stream, mode="w") as archive,
        ):
            archive.add(base_dir, filter=without_builder)  # sorted by name
        return path


setup(
    options={
        "build": {"build_base": BUILD},
        "build_ext": {"parallel": N_CORES},
        "bdist_wheel": wheel_tag,
    },
    cmdclass={"bdist_wheel": ReproducibleWheel, "sdist": ReproducibleSdist},
    ext_modules=cythonize(
        [
            Extension(
                name,
                sources,
                include_dirs=["src"],
                define_macros=macros,
                py_limited_api=STABLE_ABI,
                extra_compile_args=optimise + sanitize + omp_compile + flags,
                extra_link_args=sanitize + omp_link + strip,
                depends=native_files,
            )
            for name, (sources, flags) in EXTENSIONS.items()
        ],
        include_path=["src"],
        build_dir=os.path.join(BUILD, "cython"),
        nthreads=N_CORES,
        shared_utility_qualified_name=SHARED,
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG,
            "wraparound": False,
            "initializedcheck": DEBUG,
            "nonecheck": False,
            "cdivision": True,
            "embedsignature": True,
        },
    ),
)
