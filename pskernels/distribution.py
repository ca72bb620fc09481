"""Predictive distributions: quantiles of some levels, and what lies between them.

    between two levels   the quantile function is linear
    beyond the last one  exponential, through the last two levels:
                         Q(τ) = q_1 + b·log(τ/τ_1),  b = (q_2 - q_1) / log(τ_2/τ_1)

The same on the right with 1 - τ.  No data tell how long tails are: an exponential one
is longer than that of a normal distribution and shorter than that of Student's t.
"""

import numpy as np
import numpy.typing as npt

from pskernels._types import Array, RandomState
from pskernels._validation import check_quantiles, check_real_array, raise_not_finite
from pskernels.quantiles import rearrange

# Levels that differ by less are the same.
SAME = 1e-12


class QuantileDistribution:
    """The distribution of each of n targets, by quantiles of at least two levels.

    Parameters
    ----------
    quantiles : sequence of float
        Levels in (0, 1), increasing, at least two.
    values : array of shape (n, levels)
        Quantiles of each target; they are sorted, so that no two cross.

    Notes
    -----
    Between two levels the quantile function is linear.  Beyond the first and the last
    one the tails are exponential, as steep as the quantiles of the two levels next to
    them say: an assumption, which the data cannot confirm.  Where these two are equal,
    the tail is a point.

    Examples
    --------
    >>> import pskernels as psk
    >>> law = psk.QuantileDistribution([0.25, 0.5, 0.75], [[0.0, 1.0, 3.0]])
    >>> law.quantile([0.5, 0.625])
    array([[1., 2.]])
    >>> law.cdf([2.0])
    array([0.625])
    """

    def __init__(self, quantiles: npt.ArrayLike, values: npt.ArrayLike) -> None:
        self.quantiles = check_quantiles(quantiles)
        values = check_real_array(values, "values")
        if len(self.quantiles) < 2:
            raise ValueError(
                "a distribution needs two levels or more, got "
                f"{', '.join(map(str, self.quantiles))}"
            )
        if values.ndim != 2 or values.shape[1] != len(self.quantiles):
            raise ValueError(
                f"values must have {len(self.quantiles)} columns, one for each level, "
                f"got shape {values.shape}"
            )
        if not np.isfinite(values).all():
            raise_not_finite(values, "values")
        self.values = rearrange(values.astype(np.float64))
        self._levels = np.array(self.quantiles)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        levels = ", ".join(f"{level:g}" for level in self.quantiles)
        return f"QuantileDistribution of {len(self)} targets, levels {levels}"

    @property
    def _lower_scale(self) -> Array:
        """b of the left tail, (n,)."""
        first, second = self._levels[:2]
        found: Array = (self.values[:, 1] - self.values[:, 0]) / np.log(second / first)
        return found

    @property
    def _upper_scale(self) -> Array:
        """b of the right tail, (n,)."""
        last, before = 1 - self._levels[-1], 1 - self._levels[-2]
        found: Array = (self.values[:, -1] - self.values[:, -2]) / np.log(before / last)
        return found

    def quantile(self, q: npt.ArrayLike) -> Array:
        """Compute quantiles.

        Parameters
        ----------
        q : float or array of shape (levels,)
            Levels in (0, 1).

        Returns
        -------
        ndarray of shape (n,), or (n, levels)
        """
        q = check_real_array(q, "q").astype(np.float64)
        if not ((q > 0) & (q < 1)).all():
            raise ValueError(f"q must lie in (0, 1), got {q}")
        near = np.abs(q[..., None] - self._levels)
        closest = near.argmin(axis=-1)  # (1 - 0.8)/2 is not quite 0.1
        q = np.where(near.min(axis=-1) < SAME, self._levels[closest], q)
        return self._quantile(np.broadcast_to(q, (len(self), *q.shape)))

    def _quantile(self, q: Array) -> Array:
        """Find quantiles of levels that each target has of its own, (n, …)."""
        shape = q.shape
        q = q.reshape(len(self), -1)
        levels, values = self._levels, self.values
        right = np.clip(np.searchsorted(levels, q), 1, len(levels) - 1)
        rows = np.arange(len(self))[:, None]
        share = (q - levels[right - 1]) / (levels[right] - levels[right - 1])
        share = np.clip(share, 0.0, 1.0)
        # by both ends: exact at each of them
        found = (1 - share) * values[rows, right - 1] + share * values[rows, right]
        below, above = q < levels[0], q > levels[-1]
        with np.errstate(divide="ignore"):
            left = self._lower_scale[:, None] * np.log(q / levels[0])
            beyond = self._upper_scale[:, None] * -np.log((1 - q) / (1 - levels[-1]))
        found = np.where(below, values[:, :1] + left, found)
        result: Array = np.where(above, values[:, -1:] + beyond, found).reshape(shape)
        return result

    def cdf(self, y: npt.ArrayLike) -> Array:
        """Compute P(target ≤ y).

        Parameters
        ----------
        y : array of shape (n,)

        Returns
        -------
        ndarray of shape (n,)
            Of the targets themselves, these are uniform on (0, 1) if the distributions
            are right: the probability integral transform.
        """
        return self._cdf(self._check_targets(y))

    def _cdf(self, y: Array) -> Array:
        levels, values = self._levels, self.values
        right = (values <= y[:, None]).sum(axis=1)  # of levels at or below y
        inner = np.clip(right, 1, len(levels) - 1)
        rows = np.arange(len(self))
        start, end = values[rows, inner - 1], values[rows, inner]
        width = np.where(end > start, end - start, 1.0)
        share = np.clip((y - start) / width, 0.0, 1.0)
        share = np.where(end > start, share, (y >= end).astype(float))
        found = (1 - share) * levels[inner - 1] + share * levels[inner]
        left = levels[0] * _decay(values[:, 0] - y, self._lower_scale)
        beyond = (1 - levels[-1]) * _decay(y - values[:, -1], self._upper_scale)
        found = np.where(y < values[:, 0], left, found)
        result: Array = np.where(y >= values[:, -1], 1 - beyond, found)
        return result

    def mean(self) -> Array:
        """Compute the mean of each target, (n,)."""
        levels, values = self._levels, self.values
        inner = (values[:, 1:] + values[:, :-1]) / 2 @ np.diff(levels)
        left = levels[0] * (values[:, 0] - self._lower_scale)
        right = (1 - levels[-1]) * (values[:, -1] + self._upper_scale)
        found: Array = left + inner + right
        return found

    def interval(self, coverage: float = 0.9) -> Array:
        """Compute the interval between the levels (1 ∓ coverage)/2.

        Parameters
        ----------
        coverage : float in (0, 1)

        Returns
        -------
        ndarray of shape (n, 2)
        """
        tail = (1 - coverage) / 2
        return self.quantile([tail, 1 - tail])

    def sample(self, size: int = 1, random_state: RandomState = None) -> Array:
        """Draw from each distribution, independently.

        Parameters
        ----------
        size : int
        random_state : int or numpy.random.Generator, optional

        Returns
        -------
        ndarray of shape (n, size)
        """
        rng = np.random.default_rng(random_state)
        # in (0, 1): uniform numbers are multiples of 2⁻⁵³, 0 among them
        return self._quantile(rng.random((len(self), size)) * (1 - 2**-53) + 2**-54)

    def crps(self, y: npt.ArrayLike) -> Array:
        """Compute the continuous ranked probability score ∫ (F(z) - 1{z ≥ y})² dz.

        Parameters
        ----------
        y : array of shape (n,)

        Returns
        -------
        ndarray of shape (n,)
            In the unit of y, the smaller the better; |y - q| for a point q.
        """
        y = self._check_targets(y)
        levels, values = self._levels, self.values
        at = self._cdf(y)[:, None]
        y = y[:, None]
        start, end = values[:, :-1], values[:, 1:]
        cut = np.clip(y, start, end)
        inside = (start < y) & (y < end)
        low, high = levels[:-1], levels[1:]
        middle = np.where(inside, at, np.where(y <= start, low, high))
        left = _square_of_line(cut - start, low, middle)
        right = _square_of_line(end - cut, 1 - middle, 1 - high)
        total = (left + right).sum(axis=1)
        at, y = at[:, 0], y[:, 0]
        total += _score_tail(
            values[:, 0] - y, levels[0], np.minimum(at, levels[0]), self._lower_scale
        )
        found: Array = total + _score_tail(
            y - values[:, -1],
            1 - levels[-1],
            np.minimum(1 - at, 1 - levels[-1]),
            self._upper_scale,
        )
        return found

    def _check_targets(self, y: npt.ArrayLike) -> Array:
        y = check_real_array(y, "y").astype(np.float64)
        if y.shape != (len(self),):
            raise ValueError(
                f"y must have a target for each of {len(self)} distributions, got "
                f"shape {y.shape}"
            )
        if not np.isfinite(y).all():
            raise_not_finite(y, "y")
        return y


def _decay(distance: Array, scale: Array) -> Array:
    """Compute exp(-distance / scale) of distances beyond the last level.

    Where the scale is 0 all of the tail is at that level.
    """
    ratio = np.maximum(distance, 0.0) / np.where(scale > 0, scale, 1.0)
    return np.where(scale > 0, np.exp(-ratio), 0.0)


def _square_of_line(width: Array, start: Array, end: Array) -> Array:
    """Integrate the square of a line over an interval."""
    return width * (start**2 + start * end + end**2) / 3


def _score_tail(beyond: Array, mass: float, left: Array, scale: Array) -> Array:
    """Integrate the squared error of F over a tail.

    F falls from `mass` as exp(-distance / scale), and is `left` at the target, which is
    `beyond` the last level, or not.
    """
    beyond = np.maximum(beyond, 0.0)
    outside = scale / 2 * left**2  # from the target on, F is compared with 0
    inside = scale * (mass - left), scale / 2 * (mass**2 - left**2)
    found: Array = outside + beyond - 2 * inside[0] + inside[1]
    return found
