"""The paper's curves behind ours, as PNG."""

import numpy as np
from matplotlib.figure import Figure

from bench.paper import figure1, theory
from pskernels.theory import REGIMES, optimal_p

COLUMNS = {
    "protocol": "the paper's protocol",
    "proper": "certified solve",
    "tuned": "tuned by 5 folds",
}
STYLES = {
    "Nystrom": ("tab:gray", "o"),
    "5/n": ("#fdae61", "v"),
    "10/n": ("#f46d43", "^"),
    "30/n": ("#d73027", "s"),
    "50/n": ("#a50026", "D"),
    "Gaussian": ("black", "*"),
    "Accumulation": ("tab:blue", "P"),
    "CountSketch": ("tab:green", "X"),
    "RFF": ("tab:purple", "<"),
}


def _style(name):
    color, marker = STYLES[name.split()[-1]]
    return dict(color=color, marker=marker, markersize=4, linewidth=1.3)


def draw_figure1(run, case, plot, curves, path):
    """Error over s, time over s, and error over time, for each column."""
    names = (*figure1.PLOTS[plot], *figure1.OTHERS)
    figure = Figure(figsize=(15, 13))
    axes = figure.subplots(3, 3, sharex="col")
    for row, (column, title) in zip(axes, COLUMNS.items(), strict=True):
        for name in names:
            s, mse, sd = figure1.summarise(run, case, column, name, "mse")
            _, seconds, _ = figure1.summarise(run, case, column, name, "seconds")
            style = _style(name)
            row[0].plot(s, mse, label=name, **style)
            row[0].fill_between(s, mse - sd, mse + sd, color=style["color"], alpha=0.12)
            row[1].plot(s, seconds, **style)
            row[2].plot(seconds, mse, **style)
            if ("mse", case, plot, name) in curves:
                paper = curves["mse", case, plot, name]
                times = curves["time", case, plot, name]
                faint = dict(color=style["color"], linewidth=4, alpha=0.25, zorder=0)
                row[0].plot(paper.s, paper.mean, **faint)
                row[0].fill_between(
                    paper.s,
                    paper.mean - paper.sd,
                    paper.mean + paper.sd,
                    color=style["color"],
                    alpha=0.06,
                    zorder=0,
                )
                row[1].plot(times.s, times.mean, **faint)
                row[2].plot(times.mean, paper.mean, **faint)
        if case == "k-huber":
            peer = dict(experiment="figure1", case=case, sketch=figure1.PEER)
            seconds = [run.value(s=s, metric="seconds", **peer) for s in figure1.SIZES]
            row[1].plot(figure1.SIZES, seconds, "k--", linewidth=1, label=figure1.PEER)
            row[1].legend(fontsize=8)
        row[0].set_ylabel(f"{title}\n\ntest relative MSE")
        row[1].set_ylabel("training, seconds")
        row[2].set_ylabel("test relative MSE")
        row[1].set_yscale("log")
        row[2].set_xscale("log")
    axes[0, 0].legend(fontsize=8)
    for ax, label in zip(axes[-1], ("s", "s", "training, seconds"), strict=True):
        ax.set_xlabel(label)
    figure.suptitle(
        f"{case}, {figure1.N:,} points; wide pale lines: the paper's (its machine)"
    )
    _save(figure, path)


def draw_theory(run, path):
    """Regimes, K-satisfiability, and the best p."""
    figure = Figure(figsize=(15, 4.2))
    left, middle, right = figure.subplots(1, 3)
    sizes = np.array(theory.SIZES, dtype=float)
    for number, (name, regime) in enumerate(REGIMES.items()):
        fields = dict(experiment="theory", case=name, metric="delta2")
        measured = np.array([run.value(s=n, **fields) for n in theory.SIZES])
        stated = regime.delta2(sizes)
        color = f"C{number}"
        left.loglog(sizes, measured, "o", color=color, label=name)
        scale = np.exp(np.mean(np.log(measured / stated)))
        left.loglog(sizes, scale * stated, "-", color=color, alpha=0.6)
    left.set_xlabel("n")
    left.set_ylabel("δ_n²; lines: the stated rate")
    left.legend()
    for p in theory.PROBABILITIES:
        fields = dict(experiment="theory", case="satisfiability", sketch=f"p = {p:g}")
        rows = sorted(run.select(metric="holds", **fields), key=lambda row: row.s)
        at, often = zip(*((row.s, row.value) for row in rows), strict=True)
        middle.semilogx(at, often, marker=".", label=f"p = {p:g}")
    middle.set_xlabel(f"s, for n = {theory.SATISFIABLE_N:,}, Sobolev")
    middle.set_ylabel("share of sketches that are K-satisfiable")
    middle.legend()
    for constant in theory.CONSTANTS:
        right.plot(
            theory.GRID, theory.landmark_share(constant), label=f"C₀·d_n = {constant:g}"
        )
    right.axvline(optimal_p(), color="0.6", linestyle="--", linewidth=1)
    right.set_xlabel("p, with s = C₀·d_n/p² rows")
    right.set_ylabel("E[s'] / n")
    right.legend()
    _save(figure, path)


def _save(figure, path):
    figure.tight_layout()
    figure.savefig(path, dpi=80)
