"""What estimators share before and after a fit; a failure changes nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from pskernels._types import AnyArray


@contextmanager
def all_or_nothing(estimator: object) -> Iterator[None]:
    """Leave an estimator as it was if a fit fails, so that its old model works."""
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def keep_weighted(
    X: Any, y: Any, weight: AnyArray | None, groups: AnyArray | None = None
) -> tuple[Any, Any, Any, Any]:
    """Leave out points without weight."""
    if weight is None or weight.all():
        return X, y, weight, groups
    used = np.flatnonzero(weight)
    groups = None if groups is None else groups[used]
    return X[used], y[used], weight[used], groups


def make_machine(estimator: Any, machine_type: type[Any]) -> Any:
    """Make a machine with the parameters that it shares with an estimator."""
    given = estimator.get_params(deep=False)
    shared = given.keys() & set(machine_type._get_param_names())
    return machine_type(**{name: given[name] for name in shared})


# What some fits learn, and others do not.
NOT_ALWAYS = (
    "calibration_",
    "compression_",
    "feature_importances_",
    "growth_",
    "proba_coef_",
    "proba_intercept_",
    "proba_knots_",
    "rounds_",
)


def take_learnt(estimator: Any, machine: Any) -> None:
    """Give an estimator what a machine has learnt, and nothing of fits before."""
    for name in NOT_ALWAYS:
        vars(estimator).pop(name, None)
    learnt = vars(machine).keys() - machine.get_params(deep=False).keys()
    vars(estimator).update({name: vars(machine)[name] for name in learnt})
