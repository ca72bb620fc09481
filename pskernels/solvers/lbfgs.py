"""L-BFGS by SciPy, for smooth losses: two passes over Z an iteration, no Hessian."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pskernels._types import Array
from pskernels._validation import check_int
from pskernels.losses import LOSSES, Loss
from pskernels.objective import squared_norm
from pskernels.solvers.base import certify_model

if TYPE_CHECKING:
    from pskernels.sample import Sample
    from pskernels.solvers.base import Progress, Run, Start


@dataclass(frozen=True)
class LBFGS:
    """Limited-memory BFGS, for smooth losses and many features.

    Parameters
    ----------
    memory : int
        Pairs of steps and gradients that are kept.
    """

    memory: int = 20

    name = "lbfgs"
    default_max_iter = 2000
    advice = "raise max_iter, tol or alpha, or use solver='newton'"

    def __post_init__(self) -> None:
        check_int(self.memory, "memory", minimum=1)

    def check(self, loss: Loss) -> None:
        if not loss.smooth:
            smooth = ", ".join(name for name, make in LOSSES.items() if make().smooth)
            raise ValueError(
                f"solver 'lbfgs' needs a smooth loss ({smooth}), got {loss}; "
                "'newton' takes every loss"
            )

    def begin(self, sample: "Sample") -> "Run":
        return partial(self._run, sample)

    def _run(
        self,
        sample: "Sample",
        alpha: float,
        start: "Start",
        max_iter: int,
        progress: "Progress",
    ) -> None:
        from scipy.optimize import minimize

        fit_intercept = sample.problem.fit_intercept
        shape, n_coef = start.theta.shape, start.theta.size

        def split(x: Array) -> tuple[Array, Array]:
            theta = x[:n_coef].reshape(shape)
            return theta, x[n_coef:] if fit_intercept else start.intercept

        def value_and_gradient(x: Array) -> tuple[float, Array]:
            theta, intercept = split(x)
            sample.place(theta, intercept)
            sample.differentiate(0.0)
            gradient, total = sample.gradient(theta, alpha)
            gradient = gradient.reshape(-1)
            if fit_intercept:
                gradient = np.append(gradient, total)
            return sample.value() + alpha / 2 * squared_norm(theta), gradient

        def certify(x: Array) -> bool:
            return certify_model(sample, alpha, *split(x), progress)

        def after_iteration(x: Array) -> None:
            progress.n_iter += 1
            if certify(x):
                raise StopIteration

        x = start.theta.reshape(-1)
        if fit_intercept:
            x = np.append(x, start.intercept)
        if certify(x) or max_iter == 0:
            return
        minimize(  # type: ignore[call-overload]
            value_and_gradient,
            x,
            jac=True,
            method="L-BFGS-B",
            callback=after_iteration,
            options={
                "maxiter": max_iter,
                "maxfun": 10 * max_iter,
                "maxcor": self.memory,
                "ftol": 0.0,
                "gtol": 0.0,
            },
        )
