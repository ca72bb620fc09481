"""What was aimed at: each aim with what was reached, and whether it is enough."""

from itertools import pairwise

import numpy as np

from bench.paper import figure1, published


def check(run, experiments):
    """Lines of all aims: (aim, reached, at the most, whether)."""
    checks = dict(figure1=check_figure1, table1=check_table1, table2=check_table2)
    return [
        line for name in experiments if name in checks for line in checks[name](run)
    ]


def aim(text, reached, most, digits):
    met = "yes" if reached <= most else "**no**"
    return text, f"{reached:.{digits}f}", f"{most:.{digits}f}", met


def check_figure1(run):
    curves, lines = published.curves(), []
    for case in figure1.CASES:
        for plot, names in figure1.PLOTS.items():
            for column in ("protocol", "proper"):
                if curves:
                    lines.append(check_errors(run, case, column, plot, curves))
                lines.append(check_order(run, case, column, names, plot))
    for column in ("protocol", "proper"):
        values = run.values(
            experiment="figure1",
            case="k-huber",
            column=column,
            sketch="p-SR 30/n",
            s=100,
            metric="mse",
        )
        text = f"k-huber, p-SR 30/n, s = 100, {column}: relative MSE"
        lines.append(aim(text, values.mean(), 0.052, 4))
    return [*lines, *check_times(run)]


def check_errors(run, case, column, plot, curves):
    """Errors against the paper's, in its standard deviations."""
    excess = excess_errors(run, case, column, plot, curves)
    name = max(excess, key=lambda name: excess[name].max())
    s = figure1.SIZES[int(np.argmax(excess[name]))]
    above = sum(np.count_nonzero(values > 1) for values in excess.values())
    text = (
        f"{case}, p-{plot}, {column}: (error - the paper's) / its standard deviation, "
        f"the largest over curves and s ({name}, s = {s}; {above} above)"
    )
    return aim(text, excess[name].max(), 1.0, 2)


def excess_errors(run, case, column, plot, curves):
    """{sketch: (mean error - the paper's) / its standard deviation, for each s}."""
    excess = {}
    for name in figure1.PLOTS[plot]:
        paper = curves["mse", case, plot, name]
        _, mean, _ = figure1.summarise(run, case, column, name, "mse")
        excess[name] = (mean - paper.mean) / paper.sd
    return excess


def check_order(run, case, column, names, plot):
    """Neighbours among `names` whose errors are clearly in another order.

    The logarithms of their ratios, in the mean over s, against two standard errors.
    """
    wrong = []
    for worse, better in pairwise(names):
        ratios = np.log(errors(run, case, column, better))
        ratios -= np.log(errors(run, case, column, worse))
        means = ratios.mean(axis=0)  # of a replicate
        error = means.std(ddof=1) / np.sqrt(len(means)) if len(means) > 1 else 0.0
        if means.mean() > 2 * error:
            wrong.append(f"{better} > {worse}")
    text = f"{case}, p-{plot}, {column}: neighbours in another order than the paper's"
    if wrong:
        text += f" ({', '.join(wrong)})"
    return aim(text, len(wrong), 0, 0)


def errors(run, case, column, name):
    """Relative MSE, sizes × replicates."""
    fields = dict(experiment="figure1", case=case, column=column, sketch=name)
    return np.array([run.values(s=s, metric="mse", **fields) for s in figure1.SIZES])


def check_times(run):
    """Each p-SR point against scikit-learn, at the same s."""
    lines = []
    theirs = times(run, figure1.PEER)
    for name in figure1.TIMED:
        shares = times(run, name) / theirs
        worst = figure1.SIZES[int(np.argmax(shares))]
        above = sum(share > 0.1 for share in shares)
        text = (
            f"k-huber, {name}: training time / that of {figure1.PEER}, the largest "
            f"over s (s = {worst}; {above} of {len(shares)} above)"
        )
        lines.append(aim(text, max(shares), 0.1, 3))
    return lines


def times(run, name, metric="seconds"):
    """Of the comparison with scikit-learn, for each s."""
    fields = dict(experiment="figure1", case="k-huber", column="times", sketch=name)
    return np.array([run.value(s=s, metric=metric, **fields) for s in figure1.SIZES])


def check_table1(run):
    if ("table1", "boston") in run.missing:
        return []
    lines = []
    for sketch in ("none", "p-SR"):
        fields = dict(
            experiment="table1", case="boston", column="proper", sketch=sketch
        )
        pinball = run.values(metric="pinball", **fields).mean()
        crossing = run.values(metric="crossing", **fields).mean()
        name = "without a sketch" if sketch == "none" else f"{sketch}, s = 50"
        text = (
            f"boston, {name}, proper: pinball × 100, 10 splits (the limit is the best "
            "that was published, Sangnier et al. 2016)"
        )
        lines.append(aim(text, pinball, published.BEST_BOSTON, 2))
        lines.append(aim(f"boston, {name}, proper: crossing × 100", crossing, 0.10, 3))
    return lines


def check_table2(run):
    lines = []
    for name, column, most in (
        ("rf1", "protocol", 0.576),
        ("rf1", "proper", 0.568),
        ("scm20d", "protocol", 0.755),
        ("scm20d", "proper", 0.754),
    ):
        if ("table2", name) in run.missing:
            continue
        values = run.values(
            experiment="table2",
            case=name,
            column=column,
            sketch="p-SR",
            metric="arrmse",
        )
        lines.append(aim(f"{name}, p-SR, {column}: ARRMSE", values.mean(), most, 4))
    return lines
