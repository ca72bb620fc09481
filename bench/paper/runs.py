"""Units of work, whose results are kept on disk: a run that was stopped resumes.

The file has a line of settings and a line for each unit.  A later command with the same
settings computes the units that are not there; with other settings it begins anew, and
keeps the file of before under another name.
"""

import csv
import hashlib
import json
import math
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import pskernels
from pskernels._progress import progress

# Why a cell is empty, with --quick.
FULL_RUN_ONLY = "full run only"


class Row(NamedTuple):
    """A number."""

    experiment: str
    case: str  # a loss, or a data set
    column: str  # "protocol", "proper", "tuned", or "folds": what they chose
    sketch: str
    s: int
    replicate: int
    metric: str
    value: float


class Unit(NamedTuple):
    """What is computed, and kept, as a whole."""

    name: str
    compute: Callable[[], list[Row]]


class Run:
    """The rows of a run.

    Parameters
    ----------
    path : Path
        Of the file of results.
    settings : dict
        What results depend on, beside the name of their unit.
    fresh : bool
        Keep no results of before.
    """

    def __init__(self, path, settings, fresh=False):
        self.path = path
        self.settings = settings
        self.rows = []
        self.missing = {}  # (experiment, case): why it could not be run
        self.n_kept = 0
        self._groups = defaultdict(list)
        self._stored = {} if fresh else _read(path, settings)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not self._stored:
            os.replace(path, path.with_name("results-before.jsonl"))
        # written anew: the last line of a run that was killed may be cut short
        lines = [{"settings": settings}]
        lines += [{"unit": name, "rows": rows} for name, rows in self._stored.items()]
        new = path.with_suffix(".new")
        new.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.replace(new, path)

    def execute(self, units):
        """Rows of all units; those that are not stored are computed."""
        n_new = sum(unit.name not in self._stored for unit in units)
        self.n_kept += len(units) - n_new
        with progress(n_new, "units", verbose=1) as report:
            for unit in units:
                if unit.name not in self._stored:
                    self._compute(unit)
                    report(1)
                self._add(self._stored[unit.name])

    def select(self, **fields):
        """Rows with these fields."""
        key = tuple(fields.get(name) for name in ("experiment", "case", "sketch"))
        rows = self.rows if None in key else self._groups[key]
        return [
            row
            for row in rows
            if all(getattr(row, name) == value for name, value in fields.items())
        ]

    def values(self, **fields):
        return np.array([row.value for row in self.select(**fields)])

    def value(self, **fields):
        """The only value with these fields."""
        (row,) = self.select(**fields)
        return row.value

    def chosen(self, experiment, case, sketch, replicate=0):
        """What folds chose, by name."""
        rows = self.select(
            experiment=experiment,
            case=case,
            sketch=sketch,
            column="folds",
            replicate=replicate,
        )
        return {row.metric: row.value for row in rows}

    def write_csv(self, path):
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(Row._fields)
            writer.writerows(self.rows)

    def _compute(self, unit):
        rows = [list(row) for row in unit.compute()]
        with open(self.path, "a") as file:
            file.write(json.dumps({"unit": unit.name, "rows": rows}) + "\n")
        self._stored[unit.name] = rows

    def _add(self, rows):
        for row in (Row(*fields) for fields in rows):
            self.rows.append(row)
            self._groups[row.experiment, row.case, row.sketch].append(row)


def _read(path, settings):
    """{name: rows} of the units of a file with these settings."""
    if not path.exists():
        return {}
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:  # cut short
            break
    if not lines or lines[0] != {"settings": settings}:
        return {}
    return {line["unit"]: line["rows"] for line in lines[1:]}


def hash_sources():
    """Of the code that results are computed with."""
    here = Path(__file__).parent
    folders = (Path(pskernels.__file__).parent, here, here.parent / "benchmarks")
    files = sorted(
        file
        for folder in folders
        for pattern in ("**/*.py", "**/*.so", "**/*.pyd")
        for file in folder.glob(pattern)
    )
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def half_sd(values):
    """What the paper prints behind ±."""
    return float(np.std(values) / 2) if len(values) > 1 else math.nan
