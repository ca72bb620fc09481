"""Products of sketches with one entry in each row, whose panels of K are the result."""

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from conftest import TOLERANCE
from test_gram import EDGES, GAMMA, make_points

import pskernels as psk
from pskernels import _engine, _points, _tiles


def chosen_sketch(rng, n, s):
    """Rows in any order, a landmark twice, signs and sizes."""
    indices = np.sort(rng.permutation(n)[: max(1, s - 1)])
    columns = np.concatenate([np.arange(len(indices)), [0]])[:s]
    weights = sp.csc_array(
        (rng.normal(size=s), (rng.permutation(s), columns)), shape=(s, len(indices))
    )
    return psk.Sketch((s, n), indices, weights, 1.7)


def layouts(shape, dtype):
    """Arrays of a shape whose numbers lie together by rows, by columns, or not."""
    rows, columns = shape
    return {
        "rows": np.empty(shape, dtype),
        "columns": np.empty((columns, rows), dtype).T,
        "neither": np.empty((2 * rows, 2 * columns), dtype)[::2, ::2],
        "padded columns": np.empty((columns, rows + 3), dtype)[:, :rows].T,
    }


def test_which_weights_are_selections(rng):
    chosen, weights = _engine.selected_landmarks(chosen_sketch(rng, 50, 7).weights)
    assert sorted(chosen) == [0, 0, 1, 2, 3, 4, 5] and len(weights) == 7
    twice = sp.csc_array([[1.0, 2.0], [0.0, 0.0]])  # as many entries as rows
    for others in (twice, sp.csc_array(np.eye(3)[:, :2]), np.eye(3)):
        assert _engine.selected_landmarks(others) is None


@pytest.mark.parametrize("kernel", reference.KERNELS)
def test_every_kernel_in_every_layout(kernel, dtype, rng):
    X = make_points(rng, 300, 5, dtype, kernel)
    sketch = chosen_sketch(rng, 300, 31)
    gamma = None if kernel in reference.WITHOUT_GAMMA else GAMMA
    K = reference.KERNELS[kernel](X.astype(float), X.astype(float), GAMMA)
    for out in layouts(sketch.shape, dtype).values():
        SK = psk.sketch_gram(X, sketch=sketch, kernel=kernel, gamma=gamma, out=out).SK
        assert SK is out
        expected = sketch.to_dense() @ K
        assert reference.relative_error(SK, expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("n", EDGES)
def test_numbers_of_points_and_landmarks_at_tile_edges(n, layout, dtype, rng):
    X = make_points(rng, n, 3, dtype)
    for s in {min(n, 9), n}:
        sketch = chosen_sketch(rng, n, s)
        out = layouts(sketch.shape, dtype)[layout]
        psk.sketch_gram(X, sketch=sketch, gamma=GAMMA, out=out, parts="SK")
        expected = sketch.to_dense() @ reference.rbf(*[X.astype(float)] * 2, GAMMA)
        assert reference.relative_error(out, expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("layout", ["rows", "columns", "neither"])
def test_result_does_not_depend_on_threads_or_on_where_calls_are_cut(
    layout, dtype, rng, monkeypatch
):
    X = make_points(rng, 3000, 6, dtype)
    X[::37] *= 30  # whose tiles sum differences
    sketch = psk.SubSampling(400).draw(3000, random_state=0)

    def product(n_threads):
        out = layouts(sketch.shape, dtype)[layout]
        psk.sketch_gram(
            X, sketch=sketch, gamma=GAMMA, out=out, parts="SK", n_threads=n_threads
        )
        return out

    first = product(1)
    for n_threads in (2, 3, 7):
        np.testing.assert_array_equal(product(n_threads), first)
    monkeypatch.setattr(_engine, "FIRST_CALL_COST", 1)
    monkeypatch.setattr(_tiles, "CALL_SECONDS", 0.0)
    np.testing.assert_array_equal(product(2), first)


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_blocks_of_landmarks_where_memory_is_short(layout, dtype, rng):
    X = make_points(rng, 1000, 40, dtype)
    sketch = chosen_sketch(rng, 1000, 900)
    expected = sketch.to_dense() @ reference.rbf(*[X.astype(float)] * 2, 0.01)
    out = layouts(sketch.shape, dtype)[layout]
    psk.sketch_gram(
        X, sketch=sketch, gamma=0.01, out=out, parts="SK", memory_limit=300_000
    )
    assert reference.relative_error(out, expected) < TOLERANCE[dtype]
    with pytest.raises(ValueError, match="memory_limit=10000 .* at least"):
        psk.sketch_gram(X, sketch=sketch, parts="SK", gamma=0.01, memory_limit=10_000)


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "matern32", "polynomial"])
def test_several_gammas(kernel, layout, dtype, rng):
    X = make_points(rng, 500, 4, dtype)
    gammas = [0.2, 1.1, 0.03]
    sketch = chosen_sketch(rng, 500, 60)
    out = np.stack([layouts(sketch.shape, dtype)["rows"]] * 3)
    if layout == "columns":
        out = np.ascontiguousarray(out.swapaxes(1, 2)).swapaxes(1, 2)
    tiles = _tiles.make_tiles(
        kernel=psk.kernels.get_kernel(kernel, 1.0),
        center=np.zeros(4),
        dtype=np.dtype(dtype),
        landmarks=_points.Rows(X, sketch.indices),
        points=_points.Rows(X),
        weights=sketch.weights,
        n_threads=2,
        memory_limit=2**24,
        gammas=gammas,
    )
    assert isinstance(tiles, _engine.SelectedTiles)
    _tiles.fill_product(out, tiles, sketch.scale, "", 0)
    for gamma, SK in zip(gammas, out, strict=True):
        K = reference.KERNELS[kernel](*[X.astype(float)] * 2, gamma)
        error = reference.relative_error(SK, sketch.to_dense() @ K)
        assert error < 4 * TOLERANCE[dtype]
