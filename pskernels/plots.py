"""Plots; they need matplotlib: ``pip install pskernels[plot]``."""

import math

from pskernels._validation import check_option
from pskernels.solvers.base import SolveResult


def plot_convergence(results, *, x="seconds", ax=None):
    """Plot the certified gap of solves against time or iterations.

    Parameters
    ----------
    results : SolveResult, list of SolveResult, or dict of labels and SolveResult
    x : {"seconds", "iterations"}
    ax : matplotlib Axes, optional
        A new figure by default.

    Returns
    -------
    matplotlib Axes
    """
    check_option(x, "x", ("seconds", "iterations"))
    labelled = _with_labels(results)
    if ax is None:
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError(
                "plot_convergence needs matplotlib: pip install pskernels[plot]"
            ) from error
        _, ax = pyplot.subplots()
    for label, result in labelled.items():
        # a gap of 0 has no place on a logarithmic axis
        gaps = [line.dual_gap or math.nan for line in result.history]
        field = "seconds" if x == "seconds" else "n_iter"
        at = [getattr(line, field) for line in result.history]
        ax.plot(at, gaps, marker=".", label=label)
    ax.axhline(result.tol, color="0.6", linewidth=0.8, linestyle="--")
    ax.set_yscale("log")
    ax.set_xlabel(x)
    ax.set_ylabel("certified gap / objective")
    ax.legend()
    return ax


def _with_labels(results):
    if isinstance(results, SolveResult):
        results = [results]
    named = isinstance(results, dict)
    if not named and not isinstance(results, (list, tuple)):
        raise TypeError(f"results must be SolveResult, got {type(results).__name__}")
    for result in results.values() if named else results:
        if not isinstance(result, SolveResult):
            raise TypeError(f"results must be SolveResult, got {type(result).__name__}")
    if len(results) == 0:
        raise ValueError("results must have at least one SolveResult, got none")
    if named:
        return results
    return {
        f"{number}: {result.solver}, alpha={result.alpha:g}": result
        for number, result in enumerate(results)
    }
