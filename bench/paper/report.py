"""The report: aims, figures and tables in Markdown, and all numbers in CSV."""

import platform

import numpy as np

import pskernels as psk
from bench.paper import aims, figure1, plots, published, table1, table2, theory
from bench.paper.runs import half_sd
from pskernels._threads import available_cpus
from pskernels.theory import REGIMES

COLUMNS = {
    "protocol": "ours, the paper's protocol",
    "proper": "ours, done properly",
    "tuned": "ours, tuned by 5 folds",
}


def write(run, folder, experiments, replicates):
    """report.md, results.csv and the plots."""
    run.write_csv(folder / "results.csv")
    parts = [header(run, replicates)]
    makers = dict(
        figure1=make_figure1, table1=make_table1, table2=make_table2, theory=make_theory
    )
    lines = aims.check(run, experiments)
    if lines:
        head = ("aim", "reached", "at the most", "")
        parts.append(f"## What was aimed at\n\n{table(head, lines)}")
    parts += [makers[name](run, folder) for name in experiments]
    (folder / "report.md").write_text("\n\n".join(parts) + "\n")


def header(run, replicates):
    quick = kept = ""
    if run.settings["quick"]:
        quick = """

`--quick`: folds choose from every second or third value of the paper's grids, Figure 1
has one replicate of what they chose, and with few replicates single points miss an aim
by chance."""
    if run.n_kept:
        kept = f" {run.n_kept} units of work are from an earlier call of the same code."
    return f"""# The paper's experiments, with pskernels {psk.__version__}

T. El Ahmad, P. Laforgue, F. d'Alché-Buc, "Fast Kernel Methods for Generic Lipschitz
Losses via p-Sparsified Sketches", TMLR, 2023.

{replicates} replicates; {platform.system()} on
{platform.machine()} with {available_cpus()} cores, Python {platform.python_version()},
NumPy {np.__version__}. Every number was computed by this command, but for those of the
paper. A replicate is a sketch that is drawn anew; of Boston, one of its 10 splits,
which differ more than sketches do. ± is half the standard deviation over replicates, as
in the paper. Training times include the drawing of the sketch, which those of the
paper, on another machine, do not, and not the search of folds. For errors, losses and
times less is better. All numbers are in results.csv, with the certified relative gap of
each solution.{kept}{quick}"""


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def cell(values, digits):
    if len(values) == 0:
        return "not run"
    spread = half_sd(values)
    text = f"{np.mean(values):.{digits}f}"
    return text if np.isnan(spread) else f"{text} ± {spread:.{digits}f}"


# --------------------------------------------------------------------------
# Figures
# --------------------------------------------------------------------------


def make_figure1(run, folder):
    curves = published.curves()
    parts = [f"## Figure 1, and its versions of the appendix\n\n{docs(figure1)}"]
    if not curves:
        parts.append("The paper's curves were not found: paper_fig_curves.csv.")
    for case, of_case in figure1.CASES.items():
        chosen = run.chosen("figure1", case, figure1.TUNED_ON)
        parts.append(
            f"Folds chose for {case}: gamma = {chosen['gamma']:.4g}, "
            f"λ = {chosen['alpha']:.4g}, {of_case.tube} = {chosen[of_case.tube]:.4g}"
            f"{at_the_edge(chosen, tube=of_case.tube)}."
        )
        for plot in figure1.PLOTS:
            file = f"figure1-{case}-{plot}.png"
            plots.draw_figure1(run, case, plot, curves, folder / file)
            parts.append(f"### {case}, p-{plot}\n\n![{case}, p-{plot}]({file})")
            parts.append(errors_table(run, case, plot, curves))
            if curves:
                parts.append(distance(run, case, plot, curves))
    parts.append(times_table(run))
    return "\n\n".join(parts)


def at_the_edge(chosen, tube=None):
    """Which of the chosen values are the first or last of their grid."""
    grids = {
        "gamma": published.GAMMAS,
        "alpha": published.ALPHAS,
        tube: published.TUBES,
    }
    ends = [
        name
        for name, grid in grids.items()
        if name in chosen and np.isclose(chosen[name], grid[[0, -1]], atol=0).any()
    ]
    return f" (at the edge of the grid: {', '.join(ends)})" if ends else ""


def distance(run, case, plot, curves):
    """How far the protocol is from the paper, in both directions."""
    excess = aims.excess_errors(run, case, "protocol", plot, curves)
    every = np.concatenate(list(excess.values()))
    near = np.mean(np.abs(every) <= 2)
    return (
        f"Under the paper's protocol {near:.0%} of the {len(every)} points of its "
        "curves are met within two of its standard deviations; the differences are "
        f"{every.mean():+.2f} of them in the mean, {every.min():+.2f} to "
        f"{every.max():+.2f}."
    )


def times_table(run):
    """Training times beside scikit-learn's, which solves other problems."""
    columns = [aims.times(run, name) for name in figure1.TIMED]
    head = ["s", *figure1.TIMED]
    for name in figure1.PEERS:
        columns += [aims.times(run, name), aims.times(run, name, "mse")]
        head += [name, "its error"]
    cells = [map("{:.3f}".format, column) for column in columns]
    text = f"""### Training times beside scikit-learn's

Seconds, least of {figure1.TIMED_ROUNDS}, in turns; sketch included; Huber's loss. Ours
are certified. scikit-learn's have an intercept and learn the scale of the noise; they
stop after the default of 100 iterations, most of them before they have converged.
{figure1.PEER} has the default epsilon of 1.35, and is what the aims refer to;
epsilon = 100 is closer to the paper's kappa."""
    return f"{text}\n\n{table(head, zip(figure1.SIZES, *cells, strict=True))}"


def errors_table(run, case, plot, curves):
    """Errors and times at s = 100."""
    s, rows = 100, []
    for name in (*figure1.PLOTS[plot], *figure1.OTHERS):
        paper = {
            quantity: curves.get((quantity, case, plot, name))
            for quantity in ("mse", "time")
        }
        row = [name, at_size(paper["mse"], s, 4)]
        fields = dict(experiment="figure1", case=case, sketch=name, s=s)
        row += [
            cell(run.values(column=column, metric="mse", **fields), 4)
            for column in COLUMNS
        ]
        row.append(at_size(paper["time"], s, 2))
        row += [
            f"{run.values(column=column, metric='seconds', **fields).mean():.3f}"
            for column in COLUMNS
        ]
        rows.append(row)
    head = ("s = 100", "error: paper", *COLUMNS, "seconds: paper", *COLUMNS)
    return table(head, rows)


def at_size(curve, s, digits):
    if curve is None:
        return "not printed"
    i = int(np.flatnonzero(curve.s == s)[0])
    return f"{curve.mean[i]:.{digits}f} ± {curve.sd[i] / 2:.{digits}f}"


def docs(module):
    """The docstring of an experiment without its first line."""
    return "```\n" + module.__doc__.split("\n", 1)[1].strip("\n") + "\n```"


# --------------------------------------------------------------------------
# Tables
# --------------------------------------------------------------------------


def make_table1(run, folder):
    metrics = {"pinball": 2, "crossing": 3, "seconds": 3}
    body = make_table(run, "table1", table1.DATASETS, published.TABLE1, metrics)
    return f"## Table 1: joint quantile regression, s = 50\n\n{docs(table1)}\n\n{body}"


def make_table2(run, folder):
    metrics = {"arrmse": 4, "seconds": 3}
    body = make_table(run, "table2", table2.DATASETS, published.TABLE2, metrics)
    return f"## Table 2: multi-output regression, s = 100\n\n{docs(table2)}\n\n{body}"


def make_table(run, experiment, names, printed, metrics):
    """Data sets × metrics × sketches; a column for the paper and each of ours."""
    rows = []
    for name in names:
        for metric, digits in metrics.items():
            for sketch in published.TABLE_SKETCHES:
                row = [name, metric, sketch, printed[name, metric][sketch]]
                for column in COLUMNS:
                    row.append(
                        table_cell(run, experiment, name, metric, sketch, column)
                    )
                    if isinstance(row[-1], np.ndarray):
                        row[-1] = cell(row[-1], digits)
                rows.append(row)
    head = ("data", "metric", "sketch", "paper", *COLUMNS.values())
    choices = [
        f"Folds chose for {name}, {sketch}: gamma = {chosen['gamma']:.3g}, "
        f"λ = {chosen['alpha']:.3g}{at_the_edge(chosen)}."
        for name in names
        for sketch in published.TABLE_SKETCHES
        for chosen in [run.chosen(experiment, name, sketch)]
        if chosen
    ]
    reasons = [
        f"{name}: {run.missing[experiment, name]}."
        for name in names
        if (experiment, name) in run.missing
    ]
    return "\n\n".join([table(head, rows), *reasons, "\n".join(choices)])


def table_cell(run, experiment, name, metric, sketch, column):
    """The values of a cell, or why there are none."""
    if (experiment, name) in run.missing:
        return "not run: no data"
    if (experiment, name, sketch, column) in run.missing:
        return f"not run: {run.missing[experiment, name, sketch, column]}"
    return run.values(
        experiment=experiment, case=name, column=column, sketch=sketch, metric=metric
    )


# --------------------------------------------------------------------------
# Theory
# --------------------------------------------------------------------------


def make_theory(run, folder):
    file = "theory.png"
    plots.draw_theory(run, folder / file)
    sizes = np.array(theory.SIZES, dtype=float)
    rows = []
    for name, regime in REGIMES.items():
        fields = dict(experiment="theory", case=name)
        for metric in ("delta2", "d_n"):
            measured = [run.value(s=n, metric=metric, **fields) for n in theory.SIZES]
            stated = getattr(regime, metric)(sizes)
            slopes = [
                np.polyfit(np.log(sizes), np.log(values), 1)[0]
                for values in (measured, stated)
            ]
            rows.append(
                (name, metric, *(f"{slope:.2f}" for slope in slopes))
                + tuple(f"{value:.3g}" for value in (measured[0], measured[-1]))
            )
    regimes = table(
        (
            "kernel",
            "number",
            "power of n",
            "stated",
            *(f"n = {n:,}" for n in (theory.SIZES[0], theory.SIZES[-1])),
        ),
        rows,
    )
    best = run.value(experiment="theory", case="tradeoff", sketch="", metric="best p")
    counted = dict(experiment="theory", case="satisfiability")
    d_n = min(row.s for row in run.select(**counted)) / theory.ROWS_PER_DIMENSION[0]
    by_grid = ", ".join(
        f"{row.value:.3f} ({row.sketch})"
        for row in run.select(experiment="theory", case="tradeoff")
        if row.sketch
    )
    return f"""## Theory

![theory]({file})

Left: the critical radius of n points in one dimension, and the rate that the theory
states, with a constant fitted. How δ_n² and d_n grow, as powers of n, between the sizes
of the plot:

{regimes}

Middle: the share of sketches that are K-satisfiable for the constant c of the theorem,
which asks for s ≥ C₀·d_n/p² rows with C₀ = 5120; n = {theory.SATISFIABLE_N:,}, Sobolev
kernel, d_n = {d_n:.0f}:

{count_table(run)}

Right: the fewest landmarks at the rows that the theorem asks for, which p has them does
not depend on C₀·d_n; the values of the plot are small so that the curves can be seen.
p = {best:.4f} in closed form; on a grid {by_grid}. The paper says 0.7."""


def count_table(run):
    fields = dict(experiment="theory", case="satisfiability")
    sizes = sorted({row.s for row in run.select(**fields)})
    rows = []
    for p in theory.PROBABILITIES:
        counted = dict(sketch=f"p = {p:g}", metric="holds", **fields)
        rows.append(
            (f"p = {p:g}", *(f"{run.value(s=s, **counted):.2f}" for s in sizes))
        )
    return table(("", *(f"s = {s}" for s in sizes)), rows)
