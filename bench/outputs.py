"""Several outputs: times and errors against scikit-learn and against one output.

    python bench/outputs.py                  # all parts, three minutes
    python bench/outputs.py ridge levels

Competitors take turns in one process, and the least of a few times counts; what is
aimed at stands in brackets.  `ridge` needs the data sets rf1 and scm20d (README.md here
says where from).
"""

import numpy as np
from benchmarks import common, datasets
from benchmarks.common import best_threads, least
from sklearn.kernel_ridge import KernelRidge

import pskernels as psk
from pskernels._products import Features
from pskernels._threads import available_cpus, single_threaded_blas

TAUS = (0.1, 0.3, 0.5, 0.7, 0.9)
# (gamma, alpha) of the paper's experiments, without a sketch
PAPER_RIDGE = 7.847599703514607e-06, 2.06913808111479e-06


def threads():
    return (1, available_cpus())


def train_ridge(X, Y, gamma, alpha, seed):
    """The feature map and the model, sketch and products included."""
    sketch = psk.PSparsified(100, 20 / len(X))
    fm = psk.FeatureMap(gamma=gamma, sketch=sketch, random_state=seed)
    model = psk.solve(fm.fit_transform(X), Y, alpha=alpha, fit_intercept=False)
    return fm, model


def ridge(rounds):
    """Kernel ridge regression with and without a sketch, s = 100, p = 20/n."""
    gamma, alpha = PAPER_RIDGE
    for name in ("rf1", "scm20d"):
        X, Y, X_test, Y_test = datasets.standardised(name)
        n = len(X)
        exact = KernelRidge(kernel="rbf", gamma=gamma, alpha=n * alpha)
        theirs, _ = best_threads(2, exact.fit, X, Y)
        reference = psk.arrmse(Y_test, exact.predict(X_test), Y)
        errors, times = [], []
        for seed in range(rounds):
            ours, (fm, model) = least(2, train_ridge, X, Y, gamma, alpha, seed)
            predicted = fm.predict(X_test, model.coef, model.intercept)
            errors.append(psk.arrmse(Y_test, predicted, Y))
            times.append(ours)
        ours = min(times)
        print(
            f"{name}: n={n:,}, {Y.shape[1]} outputs   KernelRidge {theirs:.2f} s, "
            f"ARRMSE {reference:.4f}   sketched {1e3 * ours:.1f} ms "
            f"(slowest of {rounds} sketches {1e3 * max(times):.1f}), "
            f"ARRMSE {np.mean(errors):.4f}\n"
            f"    {theirs / ours:.0f}x sooner [25], error "
            f"{np.max(errors) / reference:.4f}x at the most [1.02]",
            flush=True,
        )


def levels(rounds):
    """Five quantile levels at once, to a certified gap of 1e-5, against one level."""
    (X, y), _ = common.toy(10_000)
    Z = common.toy_features(X)
    print(
        f"n={len(Z):,}, r={Z.shape[1]}, levels {TAUS}, gap 1e-5; one: mean of the five"
    )
    for n_threads in threads():
        for alpha in (1e-3, 1e-4, 1e-5, 1e-6):
            options = dict(alpha=alpha, tol=1e-5, n_threads=n_threads)
            one, line = 0.0, ""
            for tau in TAUS:
                loss = psk.Pinball(tau)
                one += least(rounds, psk.solve, Z, y, loss=loss, **options)[0] / 5
            for gamma in (0.1, 1.0, 10.0):
                five, result = least(
                    rounds,
                    psk.solve_quantiles,
                    Z,
                    y,
                    quantiles=TAUS,
                    gamma=gamma,
                    **options,
                )
                assert result.converged
                line += f"   gamma={gamma:g} {1e3 * five:.0f} ms {five / one:.1f}x"
            five, _ = least(
                rounds,
                psk.solve_quantiles,
                Z,
                y,
                quantiles=TAUS,
                noncrossing="none",
                **options,
            )
            line += f"   not coupled {five / one:.1f}x"
            print(
                f"threads {n_threads}  alpha={alpha:.0e}  one {1e3 * one:.1f} ms"
                f"{line}   [8]",
                flush=True,
            )


def hundred(rounds):
    """Squared loss, d = 100: twice the time of d = 1, plus the extra products.

    Model: T(100) = 2·T(1) + 3·t, with t the time of a product of Z with 100 vectors.
    There are three: Zᵀ·Y, Z·coef and Zᵀ·ζ, the latter two for the certificate.
    """
    (X, y), _ = common.toy(10_000)
    rng = np.random.default_rng(0)
    Z = common.toy_features(X)
    Y = Z @ rng.normal(size=(Z.shape[1], 100)) + rng.normal(size=(len(Z), 100))
    for n_threads in threads():
        options = dict(alpha=1e-4, n_threads=n_threads)
        one, _ = least(4 * rounds, psk.solve, Z, y, **options)
        many, result = least(4 * rounds, psk.solve, Z, Y, **options)
        features, flow = Features(Z, n_threads), np.ascontiguousarray(Y.T)
        with single_threaded_blas():
            product, _ = least(4 * rounds, features.t_dot, flow)
        allowed = 2 * one + 3 * product
        train_one, _ = least(rounds, train_toy, X, y, n_threads)
        train_many, _ = least(rounds, train_toy, X, Y, n_threads)
        allowed_train = 2 * train_one + 3 * product
        print(
            f"threads {n_threads}  solve: T(1) {1e3 * one:.1f} ms, T(100) "
            f"{1e3 * many:.1f} ms, t {1e3 * product:.1f} ms: {many / allowed:.2f} of "
            f"the model [1]   gap {result.dual_gap:.0e}\n"
            f"           with the feature map: {1e3 * train_one:.1f} ms, "
            f"{1e3 * train_many:.1f} ms: {train_many / allowed_train:.2f} of the model",
            flush=True,
        )


def train_toy(X, y, n_threads):
    fm = psk.FeatureMap(
        gamma=common.TOY_GAMMA,
        sketch=psk.PSparsified(100),
        random_state=0,
        n_threads=n_threads,
    )
    return psk.solve(fm.fit_transform(X), y, alpha=1e-4, n_threads=n_threads)


def rank(rounds):
    """`output_rank`: the cost of a solve with 100 outputs of ten directions."""
    (X, _), _ = common.toy(10_000)
    rng = np.random.default_rng(0)
    Z = common.toy_features(X)
    latent = Z @ rng.normal(size=(Z.shape[1], 10)) + rng.normal(size=(len(Z), 10))
    Y = latent @ rng.normal(size=(10, 100)) + 0.1 * rng.normal(size=(len(Z), 100))
    for loss in (psk.Squared(), psk.Huber(5.0), psk.Pinball(0.9)):
        times = []
        for k in (None, 10, 3):
            seconds, result = least(
                rounds, psk.solve, Z, Y, loss=loss, alpha=1e-4, output_rank=k
            )
            predicted = Z @ result.coef + result.intercept
            explained = 1 - np.var(Y - predicted) / np.var(Y)
            times.append(f"{'all' if k is None else k}: {1e3 * seconds:.0f} ms")
            times[-1] += f", R² {explained:.3f}"
        print(f"{loss!s:<22} rank " + "   ".join(times), flush=True)


def norm(rounds):
    """Losses of the norm over outputs, certified to 1e-6."""
    (X, _), _ = common.toy(10_000)
    rng = np.random.default_rng(0)
    Z = common.toy_features(X)
    for d in (2, 5, 20, 100):
        Y = Z @ rng.normal(size=(Z.shape[1], d)) + rng.standard_t(3, size=(len(Z), d))
        for loss in (psk.Huber(1.0), psk.EpsilonInsensitive(0.5)):
            line = f"d={d:<4}{loss!s:<34}"
            for alpha in (1e-2, 1e-4, 1e-6):
                seconds, result = least(rounds, psk.solve, Z, Y, loss=loss, alpha=alpha)
                assert result.converged
                line += f"   alpha={alpha:.0e} {1e3 * seconds:.0f} ms, "
                line += f"{result.n_iter} steps"
            print(line, flush=True)


PARTS = {part.__name__: part for part in (ridge, levels, hundred, rank, norm)}


if __name__ == "__main__":
    common.run_parts(PARTS, __doc__)
