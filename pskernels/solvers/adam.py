"""Adam on mini-batches: the paper's stochastic subgradient method, compiled."""

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pskernels import _adam
from pskernels._products import Features
from pskernels._random import make_generator, philox_key
from pskernels._types import Array, Indices, RandomState
from pskernels._validation import check_int, check_option, check_positive
from pskernels.solvers.base import certify_model

if TYPE_CHECKING:
    from pskernels.losses import Loss, WeightedLoss
    from pskernels.objective import Problem
    from pskernels.sample import Sample
    from pskernels.solvers.base import Progress, Run, Start

# Multiplications of one native call: Ctrl-C is heard between calls.
CALL_WORK = 2**25

SCHEDULES = {
    "constant": lambda epoch, n_epochs: 1.0,
    "inverse_sqrt": lambda epoch, n_epochs: 1 / math.sqrt(1 + epoch),
    "cosine": lambda epoch, n_epochs: (1 + math.cos(math.pi * epoch / n_epochs)) / 2,
}


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba, 2015), for every loss; for comparison.

    Iterations are epochs.  The result is the best model at the end of an epoch,
    with its certificate, which is rarely small.

    Parameters
    ----------
    learning_rate : float
        Length of a step, in the units of the coefficients: those of y, if the
        features are of order 1.
    batch_size : int
    schedule : {"inverse_sqrt", "constant", "cosine"}
        How the learning rate falls with the epochs; "cosine" to 0 at max_iter.
    beta1, beta2, epsilon : float
        Of the moving averages of gradients and their squares.
    shuffle : bool
        Take the points of every epoch in a new order; False is that of the rows.
    random_state : None, int, numpy Generator or numpy RandomState
        Shuffles the points.
    """

    learning_rate: float = 0.05
    batch_size: int = 1
    schedule: str = "inverse_sqrt"
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    shuffle: bool = True
    random_state: RandomState = None

    name = "adam"
    default_max_iter = 25
    advice = "for a small gap use solver='newton'"

    def __post_init__(self) -> None:
        check_positive(self.learning_rate, "learning_rate")
        check_int(self.batch_size, "batch_size", minimum=1)
        check_option(self.schedule, "schedule", SCHEDULES)
        check_positive(self.epsilon, "epsilon")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1), got {getattr(self, name)}")

    def check(self, loss: "Loss") -> None:
        pass

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
        (part,) = sample.problem.parts
        weight = part.points.weight * part.features.n
        rng = make_generator(philox_key(self.random_state))
        shape, n_coef = start.theta.shape, start.theta.size
        state = np.zeros((4, n_coef + len(start.intercept)))
        model = state[0]
        model[:n_coef] = start.theta.reshape(-1)
        model[n_coef:] = start.intercept
        theta, intercept = model[:n_coef].reshape(shape), model[n_coef:]
        done = certify_model(sample, alpha, theta, intercept, progress)
        while not done and progress.n_iter < max_iter:
            rate = SCHEDULES[self.schedule](progress.n_iter, max_iter)
            self._epoch(
                sample.problem, alpha, rng, weight, state, rate, progress.n_iter
            )
            progress.n_iter += 1
            done = certify_model(sample, alpha, theta, intercept, progress)

    def _epoch(
        self,
        problem: "Problem",
        alpha: float,
        rng: np.random.Generator,
        weight: Array,
        state: Array,
        rate: float,
        epoch: int,
    ) -> None:
        (part,), n = problem.parts, problem.features.n
        assert isinstance(part.features, Features)
        order = rng.permutation(n) if self.shuffle else np.arange(n)
        n_steps = epoch * -(-n // min(self.batch_size, n))
        options = alpha, rate, problem.fit_intercept
        self.take_steps(
            part.features.Z, part.points, order, weight, state, n_steps, options,
            problem.outputs.mix,
        )  # fmt: skip

    def take_steps(
        self,
        Z: Array,
        points: "WeightedLoss",
        order: Indices,
        weight: Array,
        state: Array,
        n_steps: int,
        options: tuple[float, float, bool],
        mix: Array | None = None,
    ) -> int:
        """Go over points once.

        Parameters
        ----------
        Z : array of shape (n, r)
        points : WeightedLoss
        order : array of int
            Numbers of the points, in the order in which they are taken.
        weight : array of shape (n,)
            Of mean 1.
        state : array of shape (4, k·r + d)
            The model, its two moving averages, and room; changed in place.
        n_steps : int
            Steps that were taken before.
        options : tuple
            alpha, what the learning rate is multiplied by, fit_intercept.
        mix : array of shape (d, k), optional
            As in `Outputs`.

        Returns
        -------
        int
            Steps that are taken now.
        """
        alpha, rate, fit_intercept = options
        adam = (
            alpha,
            self.learning_rate * rate,
            self.beta1,
            self.beta2,
            self.epsilon,
            fit_intercept,
        )
        d = len(points.sign)
        work = np.empty(d + (d if mix is None else mix.shape[1]))
        batch_size = min(self.batch_size, len(order))
        rows = batch_size * max(1, CALL_WORK // (state.shape[1] * batch_size))
        for begin in range(0, len(order), rows):
            _adam.adam_steps(
                Z,
                order[begin : begin + rows],
                mix,
                points.sign,
                points.offset,
                weight,
                state,
                points.numbers,
                points.radial,
                work,
                adam,
                batch_size,
                n_steps + begin // batch_size,
            )
        return -(-len(order) // batch_size)
