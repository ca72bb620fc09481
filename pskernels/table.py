"""Machines for tables: columns of numbers, dates and categories, gaps and all.

    read_table     a CSV or Parquet file -> frame
    Column         what a column is taken for, and why
    TableModel     scaling, gaps, categories and machine, in one file

``pskernels fit`` and ``pskernels predict`` are made of these.  Needs pandas and
scikit-learn: ``pip install pskernels[table]``.
"""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss, mean_absolute_error, r2_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from pskernels._validation import check_quantiles
from pskernels.estimators import (
    AutoKernelClassifier,
    AutoKernelRegressor,
    AutoQuantileRegressor,
)
from pskernels.estimators.saving import register, save
from pskernels.metric_learning import is_learnt
from pskernels.metrics import coverage, pinball_loss

# Texts that stand for a value that is not there, in any case; and those of them that
# may well be a class.
MISSING = ("", "na", "n/a", "nan", "null", "none", "?", "-")
MAY_BE_CLASSES = ("none", "-")
# Different texts that a column of categories may have; and where a column that is
# mostly numbers is one of categories all the same.
MOST_CATEGORIES, FEW_TEXTS = 50, 10
# Categories that are asked for may be as many as that.
MOST_ASKED_FOR = 1000
# Rows with a target, at least.
LEAST_ROWS = 10
# The share of a column's texts that are numbers, from which the others are mistakes.
MOSTLY = 0.5
# Numbers that are larger lose their squares.
LARGEST_NUMBER = 1e100
# What stands for a category that is not there.
NO_CATEGORY = "(missing)"
# Days and months in another order cannot be told apart.
DATE = r"\d{4}-\d{2}-\d{2}([T ].*)?"
# Texts that are something else to a reader, and what to do about it.
MONTH = (
    "(?i:jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|"
    "sept?(ember)?|oct(ober)?|nov(ember)?|dec(ember)?)"
)
DATE_IN_NUMBERS = (
    r"(\d{1,2}[./-]\d{1,2}[./-](\d{2}|\d{4})|\d{4}[./-]\d{1,2}([./-]\d{1,2})?)([T ].*)?"
)
DATE_IN_WORDS = rf"{MONTH}\.? \d{{1,2}},? \d{{4}}|\d{{1,2}}[ .-]+{MONTH}[ .-]+\d{{2,4}}"
LOOK_LIKE = {
    f"{DATE_IN_NUMBERS}|{DATE_IN_WORDS}": "dates must be written 2021-12-31",
    r"([€$£¥] ?[+-]?\d[\d.,' ]*|[+-]?\d[\d.,' ]* ?[%€$£¥]|[+-]?\d{1,3}([,' ]\d{3})+)": (
        "numbers must be without units and separators of thousands"
    ),
}
# A number, as where a comma is the decimal point.
COMMA_NUMBER = r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?"
THOUSANDS = r"[+-]?[1-9]\d{0,2},\d{3}"
# A whole number with zeros behind the point.
WHOLE = r"^([+-]?\d+)\.0+$"
REMEDY = "; mend the file, or take the column for categories, or leave it out"
REMEDY_OF_TARGETS = "; mend the file"
# Rows that classes must have on average.
LEAST_OF_A_CLASS = 2
KINDS = ("number", "date", "category")
# What classes were before they became texts.
LABELS = ("text", "integer", "boolean")
Columns = tuple[tuple[str, str], ...]  # names and kinds
TASKS = ("regression", "quantiles", "classes")


def read_table(
    path: str | os.PathLike[str], decimal_commas: bool | None = None
) -> pd.DataFrame:
    """Read a table, its cells as they are.

    Parameters
    ----------
    path : str or path
        Of a file that ends with .parquet, or of text with a line of names, whose cells
        are separated by commas, semicolons or tabs.
    decimal_commas : bool, optional
        Whether numbers have them, where cells are separated by semicolons.  None means
        that they have if any column has numbers whose comma can be nothing else.

    Returns
    -------
    pandas.DataFrame
        Of text, if the file is; `attrs` tell of decimal_commas.
    """
    path = Path(path)
    if path.suffix.lower() in (".parquet", ".pq"):
        return _read_parquet(path)
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            first = file.readline()
    except UnicodeDecodeError:
        raise _not_text(path) from None
    if not first.strip():
        raise ValueError(f"{path} is empty: its first line must name the columns")
    separator = max(",;\t", key=first.count)
    try:
        names = [one.strip() for one in next(csv.reader([first], delimiter=separator))]
    except csv.Error as error:
        raise ValueError(f"{path} has no line of names: {error}") from error
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"{path} has two columns {sorted(twice)[0]!r}: rename one")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                path,
                sep=separator,
                header=0,
                names=names,
                dtype=str,
                keep_default_na=False,
                skip_blank_lines=False,
                encoding="utf-8-sig",
                index_col=False,
            )
        return _with_points(frame, decimal_commas) if separator == ";" else frame
    except pd.errors.ParserWarning:
        raise ValueError(
            f"{path} has lines of more cells than there are names"
        ) from None
    except UnicodeDecodeError:
        raise _not_text(path) from None
    except pd.errors.ParserError as error:
        raise ValueError(
            f"{path} is no table of as many cells in each line: {error}"
        ) from error


def _not_text(path: Path) -> ValueError:
    return ValueError(
        f"{path} is not text in UTF-8: save it as such, or as a .parquet file"
    )


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        frame = pd.read_parquet(path)
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow", name="pyarrow") from error
    return frame.reset_index(drop=frame.index.names == [None])


def _with_points(frame: pd.DataFrame, decimal_commas: bool | None) -> pd.DataFrame:
    """Write numbers with a decimal point that have a comma, in columns of numbers."""
    found, certain = [], bool(decimal_commas)
    for name in frame.columns if decimal_commas is not False else ():
        cells = frame[name].str.strip()
        given = cells[~cells.str.lower().isin(MISSING)]
        with_comma = given[given.str.contains(",")]
        if len(with_comma) and given.str.fullmatch(COMMA_NUMBER).all():
            found.append((name, cells))
            certain |= not with_comma.str.fullmatch(THOUSANDS).all()
    for name, cells in found if certain else ():
        frame[name] = cells.str.replace(",", ".", regex=False)
    frame.attrs["decimal_commas"] = certain
    return frame


@dataclass(frozen=True)
class Column:
    """What a column is taken for.

    Parameters
    ----------
    name : str
    kind : {"number", "date", "category"}, or "" if it is left out
    note : str
        Why, and what is missing.
    """

    name: str
    kind: str
    note: str = ""


def describe_columns(
    frame: pd.DataFrame,
    *,
    categories: Sequence[str] = (),
    left_out: Sequence[str] = (),
) -> list[Column]:
    """Find what each column is to be taken for.

    Parameters
    ----------
    frame : pandas.DataFrame
    categories, left_out : sequences of str
        Names of columns that are categories whatever they hold, and of others that are
        not to be used.

    Returns
    -------
    list of Column

    Raises
    ------
    ValueError
        If a column is mostly numbers but not all; the message names column and row.
    """
    for name in (*categories, *left_out):
        check_name(name, frame)
    _check_names(frame)
    found = []
    for name in frame.columns:
        if name in left_out:
            found.append(Column(name, "", "left out, as you said"))
        else:
            found.append(_describe(frame[name], name in categories))
    return found


def _check_names(frame: pd.DataFrame) -> None:
    """Check that columns have texts for names, each its own."""
    for name in frame.columns:
        if not isinstance(name, str):
            raise ValueError(f"names of columns must be texts, got {name!r}")
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise ValueError(f"there are two columns {twice[0]!r}: rename one")


def check_name(name: str, frame: pd.DataFrame) -> None:
    """Check that a table has a column."""
    if name not in frame.columns:
        known = ", ".join(map(str, frame.columns))
        raise ValueError(f"there is no column {name!r}; the file has {known}")


def _describe(column: pd.Series, asked_for: bool, remedy: str = REMEDY) -> Column:
    cells = _Cells(column)
    gaps = int(cells.missing.sum())
    note = f"{gaps:,} of {len(column):,} missing" if gaps else ""
    different = cells.texts[~cells.missing].unique()
    if len(different) < 2:
        what = f"always {different[0]!r}" if len(different) else "empty"
        return Column(column.name, "", f"left out: {what}")
    said_so = isinstance(column.dtype, pd.CategoricalDtype)
    if asked_for or (said_so and len(different) <= MOST_ASKED_FOR):
        if len(different) > MOST_ASKED_FOR:
            raise ValueError(
                f"column {column.name!r} has {len(different):,} different texts; "
                f"categories are {MOST_ASKED_FOR:,} at most"
            )
        return Column(column.name, "category", _join(f"{len(different)} kinds", note))
    if cells.is_number.all() and not said_so:
        return Column(column.name, "number", note)
    if cells.is_date.all():
        return Column(column.name, "date", _join("counted in days", note))
    mostly_numbers = cells.is_number.mean() > MOSTLY and not said_so
    if len(different) > FEW_TEXTS and mostly_numbers:
        cells.raise_first(~cells.is_number, "is not a number", remedy)
    if len(different) > FEW_TEXTS and cells.is_date.mean() > MOSTLY and not said_so:
        cells.raise_first(~cells.is_date, "is not a date", remedy)
    hint = _hint_at_format(cells.texts[~cells.missing])
    if len(different) > MOST_CATEGORIES:
        what = _join(f"left out: {len(different):,} different texts", hint)
        return Column(column.name, "", what)
    what = _join(f"{len(different)} kinds", note, hint)
    return Column(column.name, "category", what)


def _check_column(column: Column, frame: pd.DataFrame, target: str) -> None:
    """Check that a column can be learnt from."""
    check_name(column.name, frame)
    if column.kind not in ("", *KINDS):
        raise ValueError(
            f"column {column.name!r} must be one of {', '.join(KINDS)}, or '' to leave "
            f"it out; got {column.kind!r}"
        )
    if column.name == target and column.kind:
        raise ValueError(f"column {target!r} is to be predicted, and not to learn from")


def _hint_at_format(texts: pd.Series) -> str:
    """Say how most cells would have to be written, to be more than texts."""
    for pattern, hint in LOOK_LIKE.items():
        if texts.str.fullmatch(pattern).mean() > MOSTLY:
            return hint
    return ""


def find_task(
    frame: pd.DataFrame,
    target: str,
    quantiles: Sequence[float] | None = None,
    classes: bool | None = None,
) -> str:
    """Find what a column can be predicted by, or raise an error that says why not.

    Parameters
    ----------
    frame, target, quantiles, classes
        As for `TableModel.fit`.

    Returns
    -------
    {"regression", "quantiles", "classes"}
    """
    _check_names(frame)
    check_name(target, frame)
    if len(frame) == 0:
        raise ValueError("the file has names of columns, but no rows")
    if classes and quantiles is not None:
        raise ValueError("there are quantiles of numbers, not of classes")
    if quantiles is not None:
        check_quantiles(quantiles)
        _Cells(frame[target]).take("number", "; quantiles are those of numbers")
        return "quantiles"
    found = None if classes else _describe(frame[target], False, REMEDY_OF_TARGETS)
    if found is None or (found.kind == "category" and classes is None):
        _check_classes(frame[target])
        return "classes"
    if found.kind == "number":
        return "regression"
    raise ValueError(
        f"column {target!r} cannot be predicted: it is neither of numbers nor of "
        f"classes ({found.note or found.kind})"
    )


def _check_classes(column: pd.Series) -> None:
    """Check that classes have some rows each, as far as they are many."""
    _, labels = take_targets(column, "classes")
    n_classes = len(set(labels))
    if n_classes > max(FEW_TEXTS, len(labels) / LEAST_OF_A_CLASS):
        raise ValueError(
            f"column {column.name!r} has {n_classes:,} different values in "
            f"{len(labels):,} rows: too many for classes"
        )


def take_targets(
    column: pd.Series, task: str
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[Any]]:
    """Tell which rows have a target, and take these.

    Of classes, too, what stands for a gap: but "none" and "-" may well be one.
    """
    cells = _Cells(column)
    if task == "classes":
        known = (
            ~cells.missing | cells.texts.str.lower().isin(MAY_BE_CLASSES)
        ).to_numpy()
        return known, cells.labels[known].astype(object).to_numpy()
    known = ~cells.missing.to_numpy()
    return known, cells.take("number")[known].to_numpy()


def _type_of_labels(column: pd.Series) -> str:
    """Tell what classes are, which models take as texts."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.cat.categories.to_series()
    if pd.api.types.is_bool_dtype(column):
        return "boolean"
    if pd.api.types.is_numeric_dtype(column) and _are_whole(column):
        return "integer"
    return "text"


def _join(*notes: str) -> str:
    return ", ".join(note for note in notes if note)


def _are_whole(numbers: pd.Series) -> bool:
    """Tell whether all numbers that there are fit into integers as they are."""
    known = numbers.dropna().to_numpy(np.float64)
    return bool(((known % 1 == 0) & (np.abs(known) < 2**53)).all())


class _Cells:
    """The cells of a column as texts, and what they may be; gaps are anything."""

    def __init__(self, column: pd.Series) -> None:
        self._name, self._rows = column.name, column.index
        if pd.api.types.is_datetime64_any_dtype(column):
            column = column.dt.strftime("%Y-%m-%d %H:%M:%S")
        elif pd.api.types.is_float_dtype(column) and _are_whole(column):
            column = column.astype("Int64")  # as they are where none is missing
        texts = column.astype(object).where(column.notna(), "").astype(str).str.strip()
        self.texts = texts.reset_index(drop=True)
        self.missing = self.texts.str.lower().isin(MISSING)

    @property
    def labels(self) -> pd.Series:
        """Texts; programs write whole numbers as 10.0 where the column has gaps."""
        return self.texts.str.replace(WHOLE, r"\1", regex=True)

    @property
    def numbers(self) -> pd.Series:
        """Numbers, NaN where there is none."""
        numbers = pd.to_numeric(self.texts.where(~self.missing), errors="coerce")
        return numbers.astype(np.float64).replace([np.inf, -np.inf], np.nan)

    @property
    def days(self) -> pd.Series:
        """Days since 1970, NaN where there is no date."""
        texts = self.texts.where(~self.missing & self.texts.str.fullmatch(DATE))
        times = pd.to_datetime(texts, errors="coerce", utc=True, format="mixed")
        # in their own unit: the year 9999 has no nanoseconds
        first = pd.Timestamp("1970-01-01", tz="UTC").as_unit(times.dt.unit)
        return (times - first) / pd.Timedelta(days=1)

    @property
    def is_number(self) -> pd.Series:
        return self.numbers.notna() | self.missing

    @property
    def is_date(self) -> pd.Series:
        return self.days.notna() | self.missing

    def take(self, kind: str, remedy: str = "") -> pd.Series:
        """Turn cells into numbers, or texts of categories."""
        if kind == "category":
            return self.labels.where(~self.missing, NO_CATEGORY).astype(object)
        good, values, what = self.is_number, self.numbers, "is not a number"
        if kind == "date":
            good, values, what = self.is_date, self.days, "is not a date"
        if not good.all():
            self.raise_first(~good, what, remedy)
        if (values.abs() > LARGEST_NUMBER).any():
            self.raise_first(values.abs() > LARGEST_NUMBER, "is too large")
        return values

    def raise_first(self, bad: pd.Series, what: str, remedy: str = "") -> NoReturn:
        """Raise an error that names the first bad cell."""
        first = int(np.flatnonzero(bad)[0])
        hint = _hint_at_format(self.texts[first : first + 1])
        row = self._rows[first]  # as it was before rows were chosen
        row = row + 1 if isinstance(row, (int, np.integer)) else row
        raise ValueError(
            f"column {self._name!r}, row {row} below the names: {self.texts[first]!r} "
            f"{what} ({int(bad.sum()):,} such cells){hint and ': '}{hint}{remedy}"
        )


@register
@dataclass(frozen=True, eq=False)
class TableModel:
    """A machine for the rows of a table, with all that turns cells into numbers.

    Parameters
    ----------
    pipeline : Pipeline
        Of numbers and texts, to predictions.
    columns : tuple of (name, kind)
        Those that it takes.
    target : str
    task : {"regression", "quantiles", "classes"}
    scores : dict
        Of rows that no fit has seen, if there were some.
    labels : {"text", "integer", "boolean"}
        What classes are in the table, and in predictions.
    decimal_commas : bool
        Whether the file had them, for `read_table` of other rows.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from pskernels.table import TableModel
    >>> rng = np.random.default_rng(0)
    >>> frame = pd.DataFrame({"a": rng.normal(size=300), "b": ["x", "y", "z"] * 100})
    >>> frame["y"] = np.sin(frame["a"]) + (frame["b"] == "x")
    >>> model = TableModel.fit(frame, "y", budget="2 s")
    >>> model.predict(frame.drop(columns="y")).columns.tolist()
    ['y']
    """

    pipeline: Pipeline
    columns: tuple[tuple[str, str], ...]
    target: str
    task: str
    scores: dict[str, float] = field(default_factory=dict)
    labels: str = "text"
    decimal_commas: bool = False

    def __post_init__(self) -> None:
        pairs = all(len(pair) == 2 and pair[1] in KINDS for pair in self.columns)
        known = self.task in TASKS and self.labels in LABELS
        if not (isinstance(self.pipeline, Pipeline) and known and pairs):
            raise ValueError("a model of a table must have a pipeline and columns")

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        target: str,
        *,
        quantiles: Sequence[float] | None = None,
        classes: bool | None = None,
        columns: Sequence[Column] | None = None,
        budget: str | float = "30 s",
        random_state: int = 0,
        verbose: int = 0,
    ) -> TableModel:
        """Fit a machine that chooses everything itself.

        Parameters
        ----------
        frame : pandas.DataFrame
        target : str
            The column to predict.  Rows where it is missing are left out.
        quantiles : sequence of float, optional
            Levels; without them the mean is predicted, or classes.  Two or more are
            calibrated, by a quarter of the rows.
        classes : bool, optional
            None means classes if the target is text.
        columns : sequence of Column, optional
            What `describe_columns` says of the others, or what you would rather have;
            None means what it says of these rows.
        budget : str or float
            Time for the fit.
        random_state, verbose : int

        Returns
        -------
        TableModel
        """
        task = find_task(frame, target, quantiles, classes)
        commas = bool(frame.attrs.get("decimal_commas"))
        kept, y = take_targets(frame[target], task)
        if len(y) < LEAST_ROWS:
            raise ValueError(
                f"column {target!r} has {len(y)} values to learn from; {LEAST_ROWS} "
                "are needed"
            )
        if columns is None:
            columns = describe_columns(frame.drop(columns=target)[kept])
        for one in columns:
            _check_column(one, frame, target)
        taken = tuple((one.name, one.kind) for one in columns if one.kind)
        if not taken:
            raise ValueError("no column is left to predict from")
        options: dict[str, Any] = dict(
            budget=budget, random_state=random_state, verbose=verbose
        )
        machine: Any = AutoKernelRegressor(**options)
        if quantiles is not None:
            levels = list(quantiles)
            calibration = "split" if len(levels) > 1 else None
            machine = AutoQuantileRegressor(
                quantiles=levels, calibration=calibration, **options
            )
        elif task == "classes":
            machine = AutoKernelClassifier(**options)
        pipeline = make_pipeline(_make_encoder(taken), machine)
        pipeline.fit(_prepare(frame, taken)[kept], y)
        labels = _type_of_labels(frame[target])
        return cls(pipeline, taken, target, task, {}, labels, commas)

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Predict a row for each row of a table.

        Parameters
        ----------
        frame : pandas.DataFrame
            Which has all columns of the fit, in any order.

        Returns
        -------
        pandas.DataFrame
            The target; or a column for each level, or for each class the probability.
        """
        X = self.prepare(frame)
        machine = self.pipeline[-1]
        if self.task == "regression":
            return pd.DataFrame({self.target: self.pipeline.predict(X)})
        if self.task == "quantiles":
            names = [f"{self.target}_{level:g}" for level in machine.quantiles_]
            if len(names) == 1:
                return pd.DataFrame(self.pipeline.predict(X), columns=names)
            law = machine.predict_distribution(self.pipeline[:-1].transform(X))
            return pd.DataFrame(law.quantile(machine.quantiles_), columns=names)
        shares = self.pipeline.predict_proba(X)
        names = [f"P({self.target}={label})" for label in machine.classes_]
        found = pd.DataFrame(shares, columns=names)
        likeliest = machine.classes_[shares.argmax(axis=1)]
        if self.labels == "integer":
            likeliest = likeliest.astype(np.int64)
        elif self.labels == "boolean":
            likeliest = likeliest == str(True)
        found.insert(0, self.target, likeliest)
        return found

    def prepare(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Turn cells into numbers and texts, by what the columns were in the fit."""
        for name, _ in self.columns:
            if name not in frame.columns:
                raise ValueError(
                    f"there is no column {name!r}, which the model has learnt from: "
                    "add it, or fit without it"
                )
        if len(frame) == 0:
            raise ValueError("there are no rows to predict")
        return _prepare(frame, self.columns)

    def count_unknown(self, frame: pd.DataFrame) -> dict[str, int]:
        """Count cells of categories that the fit did not have: {column: count}."""
        encoder = self.pipeline[0].named_transformers_.get("categories")
        names = [name for name, kind in self.columns if kind == "category"]
        if encoder is None:
            return {}
        X = self.prepare(frame)
        counts = {
            name: int((~X[name].isin(known)).sum())
            for name, known in zip(names, encoder.categories_, strict=True)
        }
        return {name: count for name, count in counts.items() if count}

    def score(self, frame: pd.DataFrame) -> dict[str, float]:
        """Score predictions of rows whose target is known.

        Returns
        -------
        dict
            "R²" and "mean absolute error"; for quantiles "mean pinball loss", the share
            of rows between the lowest and the highest level, and what it should be; for
            classes "accuracy" and "log-loss"; "of a constant" is what predicting the
            same for all of these rows would have.
        """
        check_name(self.target, frame)
        kept, y = take_targets(frame[self.target], self.task)
        if len(y) == 0:
            raise ValueError(f"no row has a {self.target!r} to compare with")
        found = self.predict(frame[kept])
        if self.task == "regression":
            predicted = found[self.target].to_numpy()
            return {
                "R²": float(r2_score(y, predicted)),
                "mean absolute error": float(mean_absolute_error(y, predicted)),
                "of a constant": float(np.abs(y - np.median(y)).mean()),
            }
        if self.task == "quantiles":
            levels = list(self.pipeline[-1].quantiles_)
            constant = np.tile(np.quantile(y, levels), (len(y), 1))
            scores = {
                "mean pinball loss": pinball_loss(y, found.to_numpy(), levels),
                "of a constant": pinball_loss(y, constant, levels),
            }
            if len(levels) > 1:
                share = levels[-1] - levels[0]
                inside = coverage(y, found.iloc[:, 0], found.iloc[:, -1])
                scores[f"share of rows in the outer interval ({share:.0%})"] = inside
            return scores
        labels = list(self.pipeline[-1].classes_)
        known = np.isin(y, labels)
        shares = found.iloc[:, 1:].to_numpy()[known]
        accuracy = float(np.mean(found[self.target].astype(str).to_numpy() == y))
        if not known.any():
            return {"accuracy": accuracy}
        counts = pd.Series(y[known]).value_counts(normalize=True)
        return {
            "accuracy": accuracy,
            "log-loss": float(log_loss(y[known], shares, labels=labels)),
            "of a constant": float(-(counts * np.log(counts)).sum()),
        }

    def get_importances(self) -> pd.Series:
        """Sum the importances of features by column: a Series that adds up to 1.

        Where there was no time to learn them, that is an error.
        """
        if not self.has_learnt_metric():
            raise ValueError("what matters was not learnt in this time: raise budget")
        shares = self.pipeline[-1].feature_importances_
        places = self.pipeline[0].output_indices_
        totals = dict.fromkeys((name for name, _ in self.columns), 0.0)
        for part, kinds in PARTS.items():
            if part not in places:
                continue
            names = [name for name, kind in self.columns if kind in kinds]
            step = self.pipeline[0].named_transformers_[part]
            for name, share in zip(
                _source_columns(step, names), shares[places[part]], strict=True
            ):
                totals[name] += float(share)
        return pd.Series(totals).sort_values(ascending=False)

    def has_learnt_metric(self) -> bool:
        """Tell whether there was time to weigh features: else all weigh the same."""
        machine = self.pipeline[-1]
        learnt = is_learnt(machine.rounds_, machine.feature_importances_)
        return len(self.columns) == 1 or learnt

    def with_scores(self, scores: dict[str, float]) -> TableModel:
        """Return the same model, with scores of rows that it has not seen."""
        return replace(self, scores=scores)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file; `pskernels.estimators.load` reads it."""
        save(self, path)


# Steps of the encoder, and the kinds of columns that they take.
PARTS = {"numbers": ("number", "date"), "categories": ("category",)}


def _make_encoder(columns: Columns) -> ColumnTransformer:
    """Make the step that scales numbers and spreads categories."""
    imputer = SimpleImputer(
        strategy="median", add_indicator=True, keep_empty_features=True
    )
    numbers = make_pipeline(imputer, StandardScaler())
    categories = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    steps = {"numbers": numbers, "categories": categories}
    chosen = {
        part: [name for name, kind in columns if kind in kinds]
        for part, kinds in PARTS.items()
    }
    return ColumnTransformer(
        [(part, steps[part], names) for part, names in chosen.items() if names]
    )


def _prepare(frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    return pd.DataFrame(
        {name: _Cells(frame[name]).take(kind) for name, kind in columns}
    )


def _source_columns(step: Any, names: list[str]) -> list[str]:
    """Tell of each feature of a step which column it comes from."""
    if isinstance(step, OneHotEncoder):
        counts = [len(known) for known in step.categories_]
        return [name for name, k in zip(names, counts, strict=True) for _ in range(k)]
    gaps = [names[number] for number in step[0].indicator_.features_]
    return [*names, *gaps]
