"""What the build must not lose in silence."""

import os
import platform
import re
import subprocess
import sys
import sysconfig

import pytest

import pskernels
from pskernels import __main__, _build_info, _demo, _engine, _simd, _threads


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_build_is_the_one_that_was_asked_for():
    """A debug build once took the files of another build for its own."""
    if os.environ.get("PSKERNELS_NO_OPENMP") == "1":
        assert _threads.OPENMP == 0
    else:
        assert _threads.OPENMP >= 201511
    assert _build_info.DEBUG == (os.environ.get("PSKERNELS_DEBUG") == "1")


@pytest.mark.skipif(
    sysconfig.get_config_var("Py_GIL_DISABLED") == 1, reason="it has no stable ABI"
)
def test_one_build_serves_every_python():
    """Modules of the version at hand, left by an older build, would be preferred."""
    assert ".abi3." in os.path.basename(_build_info.__file__)


def test_all_names_exist():
    for name in pskernels.__all__:
        assert hasattr(pskernels, name)


def test_import_is_lean():
    code = (
        "import sys, pskernels;"
        "print([m for m in ('sklearn', 'matplotlib', 'dask', 'tqdm', 'pandas')"
        " if m in sys.modules])"
    )
    assert run_python(code).stdout.strip() == "[]"


def test_version_is_that_of_the_installed_package():
    from importlib.metadata import version

    assert pskernels.__version__ == version("pskernels")


@pytest.mark.parametrize("level", _simd.LEVELS)
def test_simd_level_can_be_lowered(level):
    code = "import pskernels._engine as e; print(e.simd_level())"
    best = _simd.LEVELS.index(_engine.simd_level())
    expected = _simd.LEVELS[min(best, _simd.LEVELS.index(level))]
    assert run_python(code, PSKERNELS_SIMD=level).stdout.strip() == expected


# Products with one rounding or with two, by the features, losses and steps of Adam.
FUSED = """
import numpy as np
from pskernels import _adam, _linear, _losses

tiny, out, u = 2.0**-30, np.empty(1), np.array([[1 + 2.0**-30]])
z, v = np.array([[-1.0, 1 + tiny]]), np.array([1 + 2 * tiny, 1 + tiny])
_linear.dot(z, v, out, 1)
_losses.residuals(u, u.copy(), np.zeros(1), True, 1 + 2 * tiny, 1)
state = np.zeros((4, 3))
state[0, :2] = v
squared = np.array([[0.0, 0.0, -np.inf, np.inf, 1.0]])
one, rates = np.ones((1, 1)), (0.0, 1.0, 0.0, 0.0, 1.0, False)
_adam.adam_steps(z, np.zeros(1, np.intp), None, one, 0 * one, one[0], state, squared,
                 False, np.empty(2), rates, 1, 0)
print(out[0] != 0, u[0, 0] != 0, state[3].any())  # that of Adam: its gradient
"""


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="only x86-64 has these levels"
)
@pytest.mark.skipif(
    _build_info.DEBUG,
    reason="at -O1 gcc fuses no product with a sum, by which levels are told apart",
)
@pytest.mark.parametrize("level", _simd.LEVELS)
def test_simd_level_holds_for_every_module(level):
    """FMA is part of all levels but the lowest."""
    fused = level != "baseline" and _engine.simd_level() != "baseline"
    result = run_python(FUSED, PSKERNELS_SIMD=level)
    assert result.stdout.split() == 3 * [str(fused)], result.stderr


def test_unknown_simd_level_is_an_error():
    result = run_python("import pskernels", PSKERNELS_SIMD="mmx")
    assert "PSKERNELS_SIMD must be one of 'baseline', 'avx2'" in result.stderr


def test_info_names_what_matters(capsys):
    __main__.main(["info"])
    printed = capsys.readouterr().out
    for word in ("pskernels", "numpy", "scipy", "BLAS", "OpenMP", "SIMD", "threads"):
        assert word in printed


def test_bench_prints_a_row_for_each_sketch(capsys):
    __main__.main(["bench", "--n", "600", "--s", "20"])
    printed = capsys.readouterr().out
    for name in ("p-SR", "p-SG", "Nyström", "Accumulation", "CountSketch", "K formed"):
        assert name in printed


@pytest.mark.parametrize(
    "installed", [False, pytest.param(True, marks=pytest.mark.long)]
)
def test_demo_compares_four_tasks(installed, capsys, tmp_path, monkeypatch):
    """Beside NumPy, and beside scikit-learn where it is installed."""
    monkeypatch.setattr(_demo, "has_sklearn", lambda: installed)
    path = tmp_path / "demo.png"
    __main__.main(["demo", "--n", "1000", "--threads", "1", "--plot", str(path)])
    printed = capsys.readouterr().out
    peer = "scikit-learn" if installed else "NumPy"
    for name in ("pskernels", peer):
        assert len(re.findall(rf"^  {name}, ", printed, re.M)) == 4
    errors = [float(error) for error in re.findall(r"mean error (\S+),", printed)]
    assert errors[0] < 0.15
    inside = [float(share) for share in re.findall(r"(\S+)% inside", printed)]
    assert inside[0] == pytest.approx(90, abs=4)
    learnt, other = (float(score) for score in re.findall(r"R² (\S+)", printed))
    assert learnt > 0.9 and learnt > other
    assert float(re.search(r"within (\S+) of the least", printed)[1]) <= 1e-3
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_command_has_a_version(capsys):
    with pytest.raises(SystemExit) as end:
        __main__.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"pskernels {pskernels.__version__}\n"
