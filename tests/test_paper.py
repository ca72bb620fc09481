"""The reproduction of the paper: resuming, loaders, and a small run from end to end."""

import json

import numpy as np
import pytest

import pskernels as psk
from bench.paper import __main__ as command
from bench.paper import aims, data, figure1, published, runs, table1, table2
from bench.paper.runs import Row, Run, Unit


def make_unit(name, calls):
    def compute():
        calls.append(name)
        return [Row("e", "case", "proper", "p-SR", 10, 0, name, 1.5)]

    return Unit(name, compute)


class TestRun:
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "out" / "results.jsonl"

    def test_resumes(self, path):
        calls = []
        units = [make_unit(name, calls) for name in "abc"]
        Run(path, {"quick": True}).execute(units[:2])
        run = Run(path, {"quick": True})
        run.execute(units)
        assert run.n_kept == 2
        assert calls == ["a", "b", "c"]
        assert [row.metric for row in run.rows] == ["a", "b", "c"]

    def test_other_units_are_kept_but_not_shown(self, path):
        calls = []
        units = [make_unit(name, calls) for name in "abc"]
        Run(path, {}).execute(units)
        run = Run(path, {})
        run.execute(units[:1])
        assert [row.metric for row in run.rows] == ["a"]
        Run(path, {}).execute(units)
        assert calls == ["a", "b", "c"]

    def test_a_line_cut_short_is_computed_again(self, path):
        calls = []
        units = [make_unit(name, calls) for name in "ab"]
        Run(path, {}).execute(units)
        text = path.read_text()
        path.write_text(text[:-20])
        run = Run(path, {})
        run.execute(units)
        assert calls == ["a", "b", "b"]
        assert path.read_text() == text

    @pytest.mark.parametrize("how", ["fresh", "settings"])
    def test_begins_anew_and_keeps_the_old_file(self, path, how):
        calls = []
        units = [make_unit("a", calls)]
        Run(path, {"quick": True}).execute(units)
        text = path.read_text()
        run = Run(path, {"quick": how == "fresh"}, fresh=how == "fresh")
        run.execute(units)
        assert run.n_kept == 0
        assert calls == ["a", "a"]
        assert (path.parent / "results-before.jsonl").read_text() == text

    def test_a_unit_that_fails_is_not_kept(self, path):
        def fail():
            raise RuntimeError("no")

        run = Run(path, {})
        with pytest.raises(RuntimeError):
            run.execute([make_unit("a", []), Unit("b", fail)])
        calls = []
        Run(path, {}).execute([make_unit("a", calls), make_unit("b", calls)])
        assert calls == ["b"]

    def test_select_and_csv(self, path, tmp_path):
        run = Run(path, {})
        run.execute([make_unit(name, []) for name in "ab"])
        assert run.value(metric="b", experiment="e") == 1.5
        assert run.values(experiment="e").tolist() == [1.5, 1.5]
        group = dict(experiment="e", case="case", sketch="p-SR")
        assert [row.metric for row in run.select(**group)] == ["a", "b"]
        assert run.select(experiment="e", case="case", sketch="p-SG") == []
        run.write_csv(tmp_path / "results.csv")
        lines = (tmp_path / "results.csv").read_text().splitlines()
        assert lines[0] == "experiment,case,column,sketch,s,replicate,metric,value"
        assert lines[1:] == [f"e,case,proper,p-SR,10,0,{name},1.5" for name in "ab"]


class TestPublished:
    def test_curves(self, tmp_path, monkeypatch):
        rows = "quantity,loss,plot,sketch,s,mean,sd\nmse,k-huber,SR,Nystrom,{},0.1,{}\n"
        (tmp_path / "paper_fig_curves.csv").write_text(
            rows.format(50, 0.02) + "mse,k-huber,SR,Nystrom,40,0.2,0.01\n"
        )
        monkeypatch.setenv("PSKERNELS_DATA", str(tmp_path))
        curve = published.curves()["mse", "k-huber", "SR", "Nystrom"]
        np.testing.assert_array_equal(curve, [[40, 50], [0.2, 0.1], [0.01, 0.02]])

    def test_tables_are_whole(self):
        for printed, names in (
            (published.TABLE1, table1.DATASETS),
            (published.TABLE2, table2.DATASETS),
        ):
            assert {name for name, _ in printed} == set(names)
            assert all(
                set(row) == set(published.TABLE_SKETCHES) for row in printed.values()
            )

    def test_effective_alpha(self):
        """The slip of the scripts, on their formula for ridge regression.

        With S·K·Sᵀ too small by p², (SK·KSᵀ + n·λ·SKSᵀ)⁻¹ is that of λ·p².
        """
        rng = np.random.default_rng(0)
        X = rng.normal(size=(60, 2))
        y, p = rng.normal(size=60), 0.3
        sketch = psk.PSparsified(10, p).draw(60, random_state=0)
        SKSt, SK, _ = psk.sketch_gram(X, sketch=sketch, gamma=0.5)
        theirs = np.linalg.solve(SK @ SK.T + 60 * 0.1 * p**2 * SKSt, SK @ y)
        fm = psk.FeatureMap(gamma=0.5, sketch=sketch)
        alpha = published.effective_alpha(0.1, p)
        ours = psk.solve(fm.fit_transform(X), y, alpha=alpha, fit_intercept=False)
        np.testing.assert_allclose(fm.predict(X, ours.coef), SK.T @ theirs, rtol=1e-6)


class TestData:
    def test_boston(self, tmp_path, monkeypatch):
        rng = np.random.default_rng(0)
        X, y = rng.normal(5, 3, size=(506, 4)), rng.normal(20, 9, size=506)
        np.savez(tmp_path / "boston.npz", X=X, y=y)
        monkeypatch.setenv("PSKERNELS_DATA", str(tmp_path))
        splits = data.quantile_splits("boston")
        assert len(splits) == 10
        for X_train, y_train, X_test, y_test in splits:
            assert (len(X_train), len(y_train)) == (354, 354)
            assert (len(X_test), len(y_test)) == (152, 152)
            assert abs(y_train.mean()) < 1e-12 and y_train.std() == pytest.approx(1)
            np.testing.assert_allclose(X_train.std(axis=0), 1)
        assert not np.array_equal(splits[0][1], splits[1][1])

    def test_missing_data_says_so(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PSKERNELS_DATA", str(tmp_path))
        with pytest.raises(data.MissingDataError, match="never published"):
            data.quantile_splits("otoliths")
        with pytest.raises(data.MissingDataError, match="--download"):
            data.multi_output("rf2")
        with pytest.raises(data.MissingDataError, match="PSKERNELS_DATA") as caught:
            data.multi_output("rf1")
        assert str(tmp_path) in str(caught.value)

    def test_openml(self, tmp_path, monkeypatch):
        """Training rows come first, outputs last; missing features are 0."""
        import pandas as pd

        rng = np.random.default_rng(0)
        frame = pd.DataFrame(rng.normal(size=(9125, 584)))
        frame.iloc[0, 0] = np.nan
        fetched = []

        class Bunch:
            pass

        def fetch(**options):
            fetched.append(options)
            bunch = Bunch()
            bunch.frame = frame
            return bunch

        monkeypatch.setenv("PSKERNELS_DATA", str(tmp_path))
        monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
        X, Y, X_test, Y_test = data.multi_output("rf2", download=True)
        assert fetched[0]["name"] == "rf2"
        assert X.shape == (4108, 576) and Y_test.shape == (5017, 8)
        np.testing.assert_array_equal(Y, frame.iloc[:4108, 576:])
        column = frame.iloc[:4108, 0].fillna(0).to_numpy()
        np.testing.assert_allclose(X[:, 0], (column - column.mean()) / column.std())

        with pytest.raises(data.MissingDataError, match=r"\(9125, 584\), not"):
            data.multi_output("scm1d", download=True)
        for error in (OSError("no route"), ValueError("no such data")):

            def refuse(error=error, **options):
                raise error

            monkeypatch.setattr("sklearn.datasets.fetch_openml", refuse)
            with pytest.raises(data.MissingDataError, match=str(error)):
                data.multi_output("scm1d", download=True)


def test_targets_are_cut_towards_zero():
    Y = np.array([[1.9, -1.9]])
    cut, _ = table2.targets("protocol", Y, Y)
    assert cut.tolist() == [[1.0, -1.0]]
    assert table2.targets("proper", Y, Y)[0] is Y


def test_exact_ridge(rng):
    from sklearn.kernel_ridge import KernelRidge

    X, Y = rng.normal(size=(50, 3)), rng.normal(size=(50, 2))
    dual = table2.fit_exact(X, Y, 0.2, 0.01)
    model = KernelRidge(kernel="rbf", gamma=0.2, alpha=50 * 0.01).fit(X, Y)
    np.testing.assert_allclose(dual, model.dual_coef_, rtol=1e-8)


def test_cut_of_the_scripts():
    """Against the eigenvalues themselves, with the slip: p² too small."""
    (X, _), _ = figure1.common.toy(500)
    p = 0.001
    sketch = psk.PSparsified(200, p).draw(500, random_state=0)
    fm = psk.FeatureMap(gamma=0.1, sketch=sketch)
    fitted = figure1.fit_map(fm, X)
    S = sketch.to_dense()
    K = np.exp(-0.1 * ((X[:, None] - X) ** 2).sum(axis=2))
    eigenvalues, vectors = np.linalg.eigh(S @ K @ S.T)
    kept = ~np.isclose(p**2 * eigenvalues, 0)
    Z = K @ S.T @ vectors[:, kept] / np.sqrt(eigenvalues[kept])
    cut = figure1.cut_as_scripts(fitted, p)
    assert cut.shape[1] == np.count_nonzero(kept) < fm.rank_
    np.testing.assert_allclose(cut @ cut.T, Z @ Z.T, atol=1e-10)


def test_sparsified_learning_rates():
    """Those of the notes: lr/p."""
    rates = [figure1.METHODS[f"p-SR {m}/n"].learning_rate for m in (5, 10, 30, 50)]
    np.testing.assert_allclose(rates, [0.04, 0.05, 1 / 30, 0.1])


@pytest.fixture
def small(tmp_path, monkeypatch):
    """All experiments, on a few points."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(506, 3))
    np.savez(tmp_path / "boston.npz", X=X, y=X[:, 0] + rng.normal(size=506))
    X, Y = rng.normal(size=(300, 5)), rng.normal(size=(300, 2))
    Y += 10 * X[:, :2]
    for name in ("rf1", "scm20d"):
        np.savez(
            tmp_path / f"{name}.npz",
            X_train=X[:200],
            y_train=Y[:200],
            X_test=X[200:],
            y_test=Y[200:],
        )
    monkeypatch.setenv("PSKERNELS_DATA", str(tmp_path))
    toy = figure1.common.toy(400)
    monkeypatch.setattr(figure1, "toy", lambda: toy)
    monkeypatch.setattr(data, "BOSTON_SPLITS", 2)
    monkeypatch.setattr(figure1, "SIZES", (30, 100))
    names = ("Nystrom", *figure1.PLOTS["SR"][1:], *figure1.PLOTS["SG"][1:-1], "RFF")
    monkeypatch.setattr(
        figure1, "METHODS", {name: figure1.METHODS[name] for name in names}
    )
    monkeypatch.setattr(figure1, "OTHERS", ("RFF",))
    monkeypatch.setattr(published, "ALPHAS", np.array([1e-6, 1e-3]))
    monkeypatch.setattr(published, "GAMMAS", np.array([1e-2, 1e-1]))
    monkeypatch.setattr(command.theory, "SIZES", (50, 100))
    monkeypatch.setattr(command.theory, "SATISFIABLE_N", 200)
    monkeypatch.setattr(command.theory, "ROWS_PER_DIMENSION", (1, 4))
    table1.load.cache_clear()
    table2.load.cache_clear()
    yield tmp_path / "report"
    table1.load.cache_clear()
    table2.load.cache_clear()


@pytest.mark.parametrize(
    "experiments, parts",
    [
        (["table2", "theory"], ["Table 2", "Theory"]),
        pytest.param(
            ["--all"],
            ["Figure 1", "Table 1", "Table 2", "Theory"],
            marks=pytest.mark.long,
        ),
    ],
)
def test_from_end_to_end(small, capsys, experiments, parts):
    command.main([*experiments, "--replicates", "2", "--out", str(small)])
    text = (small / "report.md").read_text()
    for part in (*parts, "What was aimed at"):
        assert f"## {part}" in text
    assert "not run: no data" in text  # rf2, scm1d, otoliths
    assert "| rf1 | arrmse | none | 0.575 |" in text
    assert "nan" not in text
    for file in text.split("](")[1:]:
        assert (small / file.split(")")[0]).stat().st_size > 10_000
    lines = (small / "results.jsonl").read_text().splitlines()
    # a column that was computed is that of the rows
    run = Run(small / "none.jsonl", {})
    for line in lines[1:]:
        run._add(json.loads(line)["rows"])
    values = run.values(
        experiment="table2", case="rf1", column="proper", sketch="p-SR", metric="arrmse"
    )
    assert len(values) == 2
    assert f"{values.mean():.4f} ± {runs.half_sd(values):.4f}" in text


def test_names_are_put_in_order():
    assert command.parse(["theory", "table1", "theory"]).experiments == [
        "table1",
        "theory",
    ]


def test_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match="cannot be written"):
        command.main(["theory", "--out", str(tmp_path / "file")])


def test_order_is_checked(tmp_path):
    """Two replicates, one curve where it should be and one where it should not."""
    run = Run(tmp_path / "r.jsonl", {})
    for name, level in (("a", 0.3), ("b", 0.2), ("c", 0.25)):
        run._add(
            ["figure1", "k-huber", "proper", name, s, k, "mse", level + 0.001 * k]
            for s in figure1.SIZES
            for k in range(2)
        )
    names = ("a", "b", "c")
    text, reached, _, met = aims.check_order(run, "k-huber", "proper", names, "SR")
    assert (reached, met) == ("1", "**no**") and "c > b" in text


@pytest.mark.parametrize(
    "arguments",
    [[], ["figure2"], ["table1", "--replicates", "0"]],
    ids=str,
)
def test_bad_arguments(arguments, capsys):
    with pytest.raises(SystemExit):
        command.parse(arguments)
    assert "bench.paper" in capsys.readouterr().err
