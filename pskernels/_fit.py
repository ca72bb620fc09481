"""``pskernels fit`` and ``pskernels predict``: tables in files, without code."""

import os
import re
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pskernels.table import Column, TableModel

SHOWN = 8  # columns whose importance is told
FEW = 10  # whole numbers that may be those of classes
WHOLE = re.compile(r"[+-]?\d+(\.0*)?")


def run_fit(options: Namespace) -> None:
    """Fit a model to a file, and write it."""
    from sklearn.model_selection import train_test_split

    from pskernels.estimators.auto import parse_budget
    from pskernels.table import (
        TableModel,
        describe_columns,
        find_task,
        read_table,
        take_targets,
    )

    # what would else be found out when the time is over
    seconds = parse_budget(options.budget)
    if not 0 <= options.test < 1:
        raise ValueError(f"--test must be a share from 0 to 1, got {options.test:g}")
    _check_output(options.out, options.file)
    if options.plot:
        _check_picture(options.plot)
        _check_output(options.plot, options.file, options.out)
    frame = read_table(options.file)
    quantiles = _parse_levels(options.quantiles)
    task = find_task(frame, options.target, quantiles, options.classes or None)
    print(f"{len(frame):,} rows, {frame.shape[1]} columns in {options.file}")
    known, _ = take_targets(frame[options.target], task)
    if not known.all():
        print(f"left out, without {options.target}: {(~known).sum():,} of these rows")
        frame = frame[known]
    if task == "classes":
        _print_classes(frame[options.target])
    if task == "regression" and are_few_numbers(frame[options.target]):
        print(f"{options.target} has few whole numbers: --classes if they are classes")
    columns = describe_columns(
        frame.drop(columns=options.target),
        categories=_split(options.categories, options.target),
        left_out=_split(options.leave_out, options.target),
    )
    _print_columns(columns)
    fitted, held = frame, None
    if options.test > 0:
        if options.test * len(frame) < 2:
            raise ValueError(
                f"--test {options.test:g} is less than two of {len(frame):,} rows to "
                "score; give more, or 0"
            )
        fitted, held = train_test_split(
            frame, test_size=options.test, random_state=options.seed
        )
        fitted.attrs = frame.attrs
    print(
        f"\nfitting {options.target} to {len(fitted):,} rows, "
        f"for {seconds:g} s at most",
        flush=True,
    )
    model = TableModel.fit(
        fitted,
        options.target,
        quantiles=quantiles,
        classes=task == "classes",
        columns=columns,
        budget=options.budget,
        random_state=options.seed,
        verbose=0 if options.quiet else 1,
    )
    if held is not None:
        model = model.with_scores(model.score(held))
    model.save(options.out)
    if held is not None:
        print(f"\non {len(held):,} rows that the fit has not seen")
        _print_scores(model.scores)
    print(f"\nwhat matters: {_describe_importances(model)}")
    gap = model.pipeline[-1].dual_gap_
    print(f"certified: the objective is within {gap:.1e} of the least, relatively")
    print(f"\n{options.out}: the model; pskernels predict {options.out} NEW.csv")
    if options.plot:
        shown = fitted if held is None else held
        draw(model, shown, options.plot)
        rows = "the rows that were fitted" if held is None else "rows of the scores"
        print(f"{options.plot}: predictions of {rows}")


def check_writable(path: str) -> None:
    """Check that there can be a file of that name."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise ValueError(f"{path}: there is no folder {folder}")
    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder, not a file")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise ValueError(f"{path} cannot be written")


def _check_output(path: str, *others: str) -> None:
    """Check that a file can be written, and is none of others that are in use."""
    check_writable(path)
    for other in others:
        if os.path.realpath(path) == os.path.realpath(other):
            raise ValueError(f"{path} would be overwritten: give another name")


def _check_picture(path: str) -> None:
    """Check that a picture can be written, of the kind that its ending says."""
    from matplotlib.figure import Figure

    endings = Figure().canvas.get_supported_filetypes()
    if Path(path).suffix and Path(path).suffix.lower()[1:] not in endings:
        raise ValueError(f"{path} must end with one of {', '.join(endings)}")


def are_few_numbers(column: Any) -> bool:
    """Tell whether a column may well be numbered classes."""
    cells = column.dropna().astype(str).str.strip()
    different = cells[cells != ""].unique()
    return len(different) <= FEW and all(WHOLE.fullmatch(text) for text in different)


def _describe_importances(model: "TableModel") -> str:
    """List what matters most, if there was time to learn it."""
    if not model.has_learnt_metric():
        return "not learnt in this time; give a larger --budget"
    shares = model.get_importances()[:SHOWN]
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items())


def run_predict(options: Namespace) -> None:
    """Predict the rows of a file by a model, and write them."""
    from pskernels.estimators import load
    from pskernels.table import TableModel, check_name, read_table

    model = load(options.model)
    if not isinstance(model, TableModel):
        raise ValueError(
            f"{options.model} holds a {type(model).__name__}; predict takes models of "
            "pskernels fit"
        )
    if options.out:
        _check_output(options.out, options.model, options.file)
    frame = read_table(options.file, model.decimal_commas or None)
    kept = list(dict.fromkeys(_split(options.keep, "")))
    for name in kept:
        check_name(name, frame)
    found = model.predict(frame)
    for position, name in enumerate(kept):
        if name in found.columns:
            raise ValueError(f"column {name!r} cannot be kept: it is predicted")
        found.insert(position, name, frame[name].to_numpy())
    for name, count in model.count_unknown(frame).items():
        _tell(f"column {name!r}: {count:,} rows of kinds that the fit did not have")
    found.to_csv(options.out or sys.stdout, index=False)
    if options.out:
        _tell(f"{options.out}: {len(found):,} rows")
    if model.target in frame.columns:
        _tell(_describe_scores(model, frame))


def _describe_scores(model: "TableModel", frame: Any) -> str:
    """Say how good predictions are, where the target is known."""
    try:
        scores = model.score(frame)
    except ValueError as error:  # predictions are there all the same
        return f"no scores: {error}"
    listed = ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
    return f"{model.target} is known: {listed}"


def _tell(text: str) -> None:
    """Print what is not a prediction, so that predictions can be piped."""
    print(text, file=sys.stderr)


def _split(names: str | None, target: str) -> list[str]:
    """Split names of columns, of which the target is none."""
    found = [name.strip() for name in names.split(",")] if names else []
    return [name for name in found if name != target]


def _parse_levels(text: str | None) -> list[float] | None:
    if not text:
        return None
    try:
        return sorted(float(level) for level in text.split(","))
    except ValueError:
        raise ValueError(
            f"quantiles must be numbers such as 0.1,0.5,0.9, got {text!r}"
        ) from None


def _print_columns(columns: list["Column"]) -> None:
    width = max([len("column"), *(len(one.name) for one in columns)]) + 2
    print(f"\n  {'column':<{width}}{'taken for':<11}note")
    for one in columns:
        print(f"  {one.name:<{width}}{one.kind or '-':<11}{one.note}".rstrip())


def _print_classes(column: Any) -> None:
    """Print how many rows classes have, the most frequent ones first."""
    counts = column.astype(str).str.strip().value_counts()
    listed = [f"{label} {count:,}" for label, count in counts[:SHOWN].items()]
    more = [f"and {len(counts) - SHOWN} more"] if len(counts) > SHOWN else []
    print(f"classes of {column.name}: {', '.join(listed + more)}")


def _print_scores(scores: dict[str, float]) -> None:
    width = max(map(len, scores)) + 2
    for name, value in scores.items():
        print(f"  {name:<{width}}{value:.4g}")


def draw(model: "TableModel", frame: Any, path: str) -> None:
    """Draw predictions of a table, and what they depend on, to a file."""
    from matplotlib.figure import Figure

    from pskernels.table import take_targets

    figure = Figure(figsize=(9, 4), layout="constrained", dpi=120)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    kept, y = take_targets(frame[model.target], model.task)
    found = model.predict(frame[kept])
    if model.task == "classes":
        _draw_classes(left, model, found, y)
    else:
        _draw_numbers(left, model, found, y)
    if model.has_learnt_metric():
        shares = model.get_importances()[:SHOWN][::-1]
        right.barh([str(name) for name in shares.index], shares, color="C0")
        right.set_xlabel("share of what matters")
        right.spines[["top", "right"]].set_visible(False)
    else:
        right.text(0.5, 0.5, "what matters\nwas not learnt\nin this time", ha="center")
        right.set_axis_off()
    figure.savefig(Path(path))


def _draw_numbers(ax: Any, model: "TableModel", found: Any, y: Any) -> None:
    middle = found.iloc[:, found.shape[1] // 2].to_numpy()
    if model.task == "quantiles":
        ends = found.iloc[:, [0, -1]].to_numpy()
        reach = np.maximum(np.abs(ends - middle[:, None]).T, 0.0)
        ax.errorbar(middle, y, xerr=reach, fmt="none", ecolor="0.85", zorder=0)
    ax.plot(middle, y, ".", markersize=3, alpha=0.5)
    low, high = np.quantile(np.append(y, middle), [0.002, 0.998])
    ax.plot([low, high], [low, high], color="0.3", linewidth=1)
    ax.set(xlim=(low, high), ylim=(low, high))
    ax.set(xlabel=f"{model.target}, predicted", ylabel=f"{model.target}, in the file")


def count_pairs(predicted: Any, y: Any, labels: list[str]) -> Any:
    """Count rows by their class, a text, and the predicted one of any type."""
    texts = predicted.astype(str).to_numpy()
    return np.array([[np.sum((y == a) & (texts == b)) for b in labels] for a in labels])


def _draw_classes(ax: Any, model: "TableModel", found: Any, y: Any) -> None:
    labels = list(model.pipeline[-1].classes_)
    counts = count_pairs(found[model.target], y, labels)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if len(labels) <= 12:
        for (row, column), count in np.ndenumerate(counts):
            shade = "white" if shares[row, column] > 0.5 else "black"
            ax.text(column, row, f"{count}", ha="center", va="center", color=shade)
    names = [str(label) for label in labels]
    ax.set_xticks(range(len(labels)), names, rotation=45, ha="right")
    ax.set_yticks(range(len(labels)), names)
    ax.set(xlabel=f"{model.target}, predicted", ylabel=f"{model.target}, in the file")
