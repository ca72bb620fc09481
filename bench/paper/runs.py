"""Units of work, whose results are kept on disk: a run that was stopped resumes.

The file has a line of settings, a line for each unit, and a last one that says that the
run is finished.  Another command with the same settings goes on where the last one was
stopped; after a finished run it begins anew.
"""

import csv
import json
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pskernels._progress import progress

# The replicate of what folds chose.
TUNING = -1


class Row(NamedTuple):
    """A number."""

    experiment: str
    case: str  # a loss, or a data set
    column: str  # "protocol", "proper", "tuned", or who else computed it
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
        Results of other settings are discarded.
    fresh : bool
        Discard all results.
    """

    def __init__(self, path, settings, fresh=False):
        self.path = path
        self.settings = settings
        self.rows = []
        self.missing = {}  # (experiment, case): why it could not be run
        self._done = set()
        units = [] if fresh else _read_unfinished(path, settings)
        for unit in units:
            self._add(unit["unit"], unit["rows"])
        path.parent.mkdir(parents=True, exist_ok=True)
        # written anew: the last line of a run that was killed may be cut short
        lines = [{"settings": settings}, *units]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    @property
    def n_resumed(self):
        return len(self._done)

    def execute(self, units):
        """Compute the units that are not there yet."""
        units = [unit for unit in units if unit.name not in self._done]
        with progress(len(units), "units", verbose=1) as report:
            for unit in units:
                rows = [list(row) for row in unit.compute()]
                self._write({"unit": unit.name, "rows": rows})
                self._add(unit.name, rows)
                report(1)

    def finish(self):
        self._write({"finished": True})

    def select(self, **fields):
        """Rows with these fields."""
        return [
            row
            for row in self.rows
            if all(getattr(row, name) == value for name, value in fields.items())
        ]

    def values(self, **fields):
        return np.array([row.value for row in self.select(**fields)])

    def value(self, **fields):
        """The only value with these fields."""
        (row,) = self.select(**fields)
        return row.value

    def tuned(self, experiment, case, sketch):
        """(gamma, alpha) that folds chose."""
        return tuple(
            self.value(
                experiment=experiment,
                case=case,
                sketch=sketch,
                replicate=TUNING,
                metric=metric,
            )
            for metric in ("gamma", "alpha")
        )

    def write_csv(self, path):
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(Row._fields)
            writer.writerows(self.rows)

    def _add(self, name, rows):
        self._done.add(name)
        self.rows += [Row(*row) for row in rows]

    def _write(self, line):
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")


def _read_unfinished(path, settings):
    """Units of a run with these settings that was stopped."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:  # cut short
            break
    if not lines or lines[0] != {"settings": settings} or "finished" in lines[-1]:
        return []
    return lines[1:]


def half_sd(values):
    """What the paper prints behind ±."""
    return float(np.std(values) / 2) if len(values) > 1 else math.nan
