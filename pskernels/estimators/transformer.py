"""`KernelSketch`: the feature map as a scikit-learn transformer."""

from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from pskernels.estimators.base import SketchedEstimator


class KernelSketch(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, SketchedEstimator
):
    """Features whose scalar products approximate a kernel.

    A drop-in for scikit-learn's `Nystroem`, with any sketch: for a `Pipeline` with a
    linear model of yours.

    Parameters
    ----------
    kernel : str, kernel object or callable
        "rbf", "laplacian", "matern12", "matern32", "matern52", "polynomial",
        "linear", "cosine", "sobolev" (for features ≥ 0), "precomputed"; an object such
        as ``Matern(0.5, nu=2.5)``; or a function of two arrays of points.
    gamma : float, "scale" or "median", optional
        Scale of the kernel.  None means "scale": 1 / (n_features · X.var()).
    sketch : str or sketch
        "p-sr" and "p-sg" (p-sparsified, with signs or normal numbers), "nystroem",
        "gaussian", "accumulation", "count-sketch", "ros"; or an object such as
        ``PSparsified(s=100)``, which has its own n_components and p.
    n_components : int
        Rows of the sketch, the largest number of features.
    p : float in (0, 1], optional
        Probability of a non-zero of "p-sr" and "p-sg"; None means 20 / n.
    memory_limit : int, optional
        Bytes that may be used beside inputs and results; 1 GiB by default.
    n_threads : int, optional
        None means all cores this process may use.
    random_state : None, int, numpy Generator or numpy RandomState
        For drawing the sketch.
    verbose : int
        1 shows progress.

    Attributes
    ----------
    feature_map_ : FeatureMap
    kernel_ : kernel object
        The kernel, its gamma a number.
    sketch_ : Sketch
        The drawn sketch.
    landmarks_ : array of shape (m, d)
        The points of the fit that the features need.
    n_features_in_ : int
    feature_names_in_ : array of str
        Only if X has names.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from pskernels.estimators import KernelSketch
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(500, 2))
    >>> y = np.sin(6 * X[:, 0]) * X[:, 1]
    >>> model = make_pipeline(KernelSketch(gamma=5.0, random_state=0), Ridge(1e-3))
    >>> bool(model.fit(X, y).score(X, y) > 0.99)
    True
    """

    def __init__(
        self,
        *,
        kernel="rbf",
        gamma=None,
        sketch="p-sr",
        n_components=100,
        p=None,
        memory_limit=None,
        n_threads=None,
        random_state=None,
        verbose=0,
    ):
        self.kernel = kernel
        self.gamma = gamma
        self.sketch = sketch
        self.n_components = n_components
        self.p = p
        self.memory_limit = memory_limit
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X, y=None):
        """Draw the sketch, and learn the map.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n, d)
        y : ignored

        Returns
        -------
        The transformer itself.
        """
        feature_map, X = self._prepare_map(X)
        self.feature_map_ = feature_map.fit(X)
        return self

    def fit_transform(self, X, y=None):
        """``fit(X).transform(X)``.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n, d)
        y : ignored

        Returns
        -------
        ndarray of shape (n, n_features_out)
        """
        feature_map, X = self._prepare_map(X)
        Z = feature_map.fit_transform(X)
        self.feature_map_ = feature_map
        return Z

    def _prepare_map(self, X):
        X = self._check_points(X, reset=True)
        self._warn_if_unscaled(X)
        return self._make_map(X, None, self._seed()), X

    def transform(self, X):
        """The features of points.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_features_out)
            float32 if X and the points of the fit are, else float64.
        """
        check_is_fitted(self)
        return self.feature_map_.transform(self._check_points(X, reset=False))

    @property
    def _n_features_out(self):
        return self.feature_map_.rank_
