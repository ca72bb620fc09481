"""Plots; they need matplotlib: ``pip install pskernels[plot]``."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from pskernels._validation import check_option
from pskernels.solvers.base import Iteration, SolveResult

Results: TypeAlias = SolveResult | Sequence[SolveResult] | dict[str, SolveResult]


def plot_convergence(results: Results, *, x: str = "seconds", ax: Any = None) -> Any:
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
    ax = get_axes(ax)
    for label, result in labelled.items():
        draw_history(ax, result.history, x, label=label)
    finish_convergence(ax, x, result.tol)
    return ax


def get_axes(ax: Any) -> Any:
    """Find the axes to draw on, those of a new figure by default."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install matplotlib") from error
    return pyplot.subplots()[1]


def draw_history(ax: Any, history: Iterable[Iteration], x: str, **style: Any) -> Any:
    """Draw the line of a history of iterations."""
    # a gap of 0 has no place on a logarithmic axis
    gaps = [line.dual_gap or math.nan for line in history]
    field = "seconds" if x == "seconds" else "n_iter"
    at = [getattr(line, field) for line in history]
    (line,) = ax.plot(at, gaps, marker=".", **style)
    return line


def finish_convergence(ax: Any, x: str, tol: float) -> None:
    """Add what the axes of histories need."""
    ax.axhline(tol, color="0.6", linewidth=0.8, linestyle="--")
    ax.set_yscale("log")
    ax.set_xlabel(x)
    ax.set_ylabel("certified gap / objective")
    # above the axes, since lines fall from one corner to the other
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, fontsize="small")


def _with_labels(results: Results) -> dict[str, SolveResult]:
    if isinstance(results, SolveResult):
        results = [results]
    if not isinstance(results, (dict, list, tuple)):
        raise TypeError(f"results must be SolveResult, got {type(results).__name__}")
    for result in results.values() if isinstance(results, dict) else results:
        if not isinstance(result, SolveResult):
            raise TypeError(f"results must be SolveResult, got {type(result).__name__}")
    if len(results) == 0:
        raise ValueError("results must have at least one SolveResult, got none")
    if isinstance(results, dict):
        return results
    return {
        f"{number}: {result.solver}, alpha={result.alpha:g}": result
        for number, result in enumerate(results)
    }
