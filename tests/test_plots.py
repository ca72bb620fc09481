import sys

import numpy as np
import pytest

import pskernels as psk


@pytest.fixture
def results(rng):
    Z, y = rng.normal(size=(100, 3)), rng.normal(size=100)
    return psk.path(Z, y, alphas=[0.1, 1e-3], loss="absolute")


@pytest.mark.parametrize("x", ["seconds", "iterations"])
def test_plot_convergence_shows_the_history(x, results):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    ax = psk.plot_convergence({"one": results[0], "two": results[1]}, x=x)
    lines = {line.get_label(): line.get_xydata() for line in ax.get_lines()}
    for label, result in zip(("one", "two"), results, strict=True):
        gaps = [line.dual_gap for line in result.history]
        np.testing.assert_array_equal(lines[label][:, 1], gaps)
    assert ax.get_yscale() == "log" and ax.get_xlabel() == x
    assert psk.plot_convergence(results, ax=ax) is ax
    assert psk.plot_convergence(results[0], ax=ax) is ax


def test_plot_convergence_refuses(results, monkeypatch):
    with pytest.raises(TypeError, match="results must be SolveResult, got int"):
        psk.plot_convergence([1])
    with pytest.raises(ValueError, match="at least one SolveResult"):
        psk.plot_convergence([])
    with pytest.raises(ValueError, match="x must be one of 'seconds'"):
        psk.plot_convergence(results, x="time")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="need matplotlib: pip install matplotlib"):
        psk.plot_convergence(results)
