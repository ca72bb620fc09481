"""Features as solvers see them: what can be multiplied, whatever it is made of.

    Features        an array Z                                   (pskernels._products)
    FeatureBlocks   features of some rows each, one after the other

All of them have n rows of r features and answer: `dot` (predictions), `check_finite`,
`largest`, `sum_error` (what certificates ask for), `near_zero`, `moved`, `with_threads`
and `blocks`.  Their blocks, which a `Sample` asks one by one, have `t_dot`, `gram`,
`bordered_t_dot`, `bordered_gram_dot` and `exact_residuals` as well: vectors of all
points never need to be in one place.
"""

import numpy as np

from pskernels._products import EPS, Features, far_origin
from pskernels._threads import cached_property
from pskernels._validation import check_points, common_dtype


def as_features(Z, n_threads):
    """Features of an array of shape (n, r), or those that are given."""
    if isinstance(Z, (Features, FeatureBlocks)):
        return Z.with_threads(n_threads)
    Z = check_points(Z, "Z")
    return Features(Z.astype(common_dtype(Z), copy=False), n_threads)


class FeatureBlocks:
    """Features of some rows each, one after the other.

    Parameters
    ----------
    blocks : sequence of features, of as many columns each
    """

    def __init__(self, blocks):
        self.blocks = [block for part in blocks for block in part.blocks]
        if not self.blocks:
            raise ValueError("there must be at least one block")
        self.n = sum(block.n for block in self.blocks)
        widths = {block.r for block in self.blocks}
        if len(widths) != 1:
            raise ValueError(f"blocks must have equal columns, got {sorted(widths)}")
        (self.r,) = widths
        self.origin = self.blocks[0].origin
        if any(not np.array_equal(self.origin, block.origin) for block in self.blocks):
            raise ValueError("blocks must have the same origin")

    def with_threads(self, n_threads):
        """The same for another number of threads."""
        return FeatureBlocks(block.with_threads(n_threads) for block in self.blocks)

    def check_finite(self):
        """Check that all numbers are finite, and can be summed."""
        for block in self.blocks:
            block.check_finite()

    @cached_property
    def column_range(self):
        """The least and the largest number of each column."""
        low, high = zip(*(block.column_range for block in self.blocks), strict=True)
        return np.min(low, axis=0), np.max(high, axis=0)

    @cached_property
    def largest(self):
        """The largest |z| of each column."""
        return np.max([block.largest for block in self.blocks], axis=0)

    @property
    def sum_error(self):
        """A bound on the error of a sum over rows, relative to that of the sizes."""
        worst = max(block.sum_error for block in self.blocks)
        return worst + EPS * (len(self.blocks) - 1)

    def near_zero(self):
        """Move columns that are far from 0 to a common origin amid them."""
        origin = far_origin(*self.column_range, self.dtype)
        if origin is None:
            return self
        return FeatureBlocks(block.around(origin) for block in self.blocks)

    def moved(self, coef):
        """Compute what the origin adds to predictions: origin @ coef."""
        return self.blocks[0].moved(coef)

    @property
    def dtype(self):
        return np.result_type(*(block.dtype for block in self.blocks))

    def dot(self, V):
        """V @ Z.T, for one row or several of V."""
        return np.concatenate([block.dot(V) for block in self.blocks], axis=1)
