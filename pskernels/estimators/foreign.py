"""Classes of scikit-learn that a file may hold, so that whole pipelines can be saved.

Scalers, imputers and encoders are parameters and what they have learnt: numbers, text
and lists.  Loading sets these and executes nothing that a file names.  What an encoder
of categories computes places in memory by is computed anew, from the categories.
"""

import re
import warnings
from collections import UserList
from itertools import pairwise
from typing import Any

import numpy as np
import sklearn
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from pskernels._validation import levels_to_the_caller

CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        Pipeline,
        ColumnTransformer,
        TransformedTargetRegressor,
        StandardScaler,
        MinMaxScaler,
        MaxAbsScaler,
        RobustScaler,
        SimpleImputer,
        MissingIndicator,
        OneHotEncoder,
        OrdinalEncoder,
        FunctionTransformer,  # of no function: what ColumnTransformer passes through
    )
}

# Types that are parameters, such as that of an encoder's numbers.
TYPES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        object,
        bool,
        int,
        float,
        str,
        np.number,
        np.integer,
        np.floating,
        np.bool_,
        np.int32,
        np.int64,
        np.float32,
        np.float64,
    )
}

# Of an encoder: all else is computed from it.
ENCODER_LEARNT = (
    "categories_",
    "feature_names_in_",
    "n_features_in_",
    "_sklearn_output_config",
)
NAME = re.compile(r"[A-Za-z]\w*_|_[A-Za-z]\w*")


def get_state(value: Any) -> dict[str, Any]:
    """Collect what is to be written of an instance."""
    state: dict[str, Any] = {"sklearn": sklearn.__version__} | vars(value)
    state.pop("_metadata_request", None)
    if isinstance(value, ColumnTransformer):
        state = {name: _with_plain_lists(item) for name, item in state.items()}
    if not isinstance(value, OneHotEncoder) or not hasattr(value, "categories_"):
        return state
    if any(part is not None for part in (value.drop, *_infrequent(value))):
        raise TypeError(
            "OneHotEncoder cannot be saved with drop, min_frequency or max_categories"
        )
    params = value.get_params(deep=False)
    written = {"sklearn", *params, *ENCODER_LEARNT}
    return {name: item for name, item in state.items() if name in written}


def _with_plain_lists(item: Any) -> Any:
    """Replace the lists that scikit-learn 1.6 warns by, of columns that remain."""
    if type(item) in (list, tuple):
        return type(item)(map(_with_plain_lists, item))
    return item.data if isinstance(item, UserList) else item


def _infrequent(encoder: Any) -> tuple[Any, Any]:
    return encoder.min_frequency, encoder.max_categories


def make(cls: Any, state: dict[str, Any]) -> Any:
    """Make an instance of its parameters, and of what it has learnt."""
    version = state.pop("sklearn", None)
    if version != sklearn.__version__:
        warnings.warn(
            f"the {cls.__name__} in the file was made by scikit-learn {version}, and "
            f"this is {sklearn.__version__}: compare some predictions",
            UserWarning,
            stacklevel=levels_to_the_caller(),
        )
    for name in state.keys() & {"memory", "n_jobs"}:
        state[name] = None  # a folder of pickles, and as many processes as a file says
    params = state.keys() & set(cls._get_param_names())
    value = cls(**{name: state.pop(name) for name in params})
    for name in state:
        if not NAME.fullmatch(name) or hasattr(cls, name):
            raise ValueError(f"{cls.__name__} must not have {name!r}")
    if cls is OneHotEncoder and state:
        return _fit_encoder(value, state)
    vars(value).update(state)
    return value


def _fit_encoder(encoder: Any, state: dict[str, Any]) -> Any:
    """Fit an encoder whose categories are given to a row of them."""
    if state.keys() - set(ENCODER_LEARNT):
        raise ValueError(f"an encoder must not have learnt {sorted(state)}")
    categories = state["categories_"]
    if not all(_is_ordered(known) for known in categories):
        raise ValueError("categories of an encoder must be in order")
    kept, encoder.categories = encoder.categories, list(categories)
    encoder.fit(np.array([[known[0] for known in categories]], dtype=object))
    encoder.categories = kept
    names = state.get("feature_names_in_")
    if names is not None and np.shape(names) != (len(categories),):
        raise ValueError("an encoder must have a name for each column")
    vars(encoder).update(state)
    return encoder


def _is_ordered(known: Any) -> bool:
    """Tell whether scikit-learn finds categories, by halving, where they are.

    Texts among objects are found by a table, in any order; a gap is the last one.
    """
    members = list(known)
    while members and (members[-1] is None or members[-1] != members[-1]):
        members.pop()
    texts = [isinstance(one, str) for one in members]
    if known.dtype == object and all(texts):
        return True
    return all(texts) == any(texts) and all(a < b for a, b in pairwise(members))
