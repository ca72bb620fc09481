"""Tables in files: what columns are taken for, models, and the commands."""

import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from pskernels import __main__
from pskernels._fit import are_few_numbers, count_pairs
from pskernels.estimators import AutoKernelRegressor, load
from pskernels.table import Column, TableModel, describe_columns, read_table

BUDGET = "1 s"


def make_frame(n=400, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "income": rng.normal(3, 1, size=n),
            "rooms": rng.integers(1, 6, size=n),
            "town": rng.choice(["Aix", "Brest", "Cahors"], size=n),
            "sold": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.integers(0, 700, size=n), unit="D"),
            "id": [f"house {number}" for number in range(n)],
            "country": "F",
        }
    )
    worth = {"Aix": 2.0, "Brest": 0.0, "Cahors": -1.0}
    price = frame["income"] + 0.5 * frame["rooms"] + frame["town"].map(worth)
    frame["price"] = price + 0.1 * rng.normal(size=n)
    frame["cheap"] = np.where(price < price.median(), "yes", "no")
    return frame


@pytest.fixture
def houses(tmp_path):
    path = tmp_path / "houses.csv"
    frame = make_frame()
    frame.loc[3, "income"] = np.nan
    frame.loc[4, "town"] = None
    frame.loc[5, "price"] = np.nan
    frame.to_csv(path, index=False)
    return path


def run(*arguments):
    __main__.main([str(argument) for argument in arguments])


def test_columns_are_told(houses):
    columns = describe_columns(read_table(houses), left_out=["cheap"])
    assert {one.name: (one.kind, one.note) for one in columns} == {
        "income": ("number", "1 of 400 missing"),
        "rooms": ("number", ""),
        "town": ("category", "3 kinds, 1 of 400 missing"),
        "sold": ("date", "counted in days"),
        "id": ("", "left out: 400 different texts"),
        "country": ("", "left out: always 'F'"),
        "price": ("number", "1 of 400 missing"),
        "cheap": ("", "left out, as you said"),
    }


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separators(separator, tmp_path):
    frame = make_frame(20)
    path = tmp_path / "table.csv"
    frame.to_csv(path, index=False, sep=separator)
    assert read_table(path).columns.tolist() == frame.columns.tolist()
    np.testing.assert_array_equal(
        read_table(path)["income"].astype(float), frame["income"]
    )


def test_parquet_is_as_csv(tmp_path):
    frame = make_frame()
    frame.to_parquet(tmp_path / "table.parquet")
    frame.to_csv(tmp_path / "table.csv", index=False)
    described = [
        describe_columns(read_table(tmp_path / f"table.{ending}"))
        for ending in ("parquet", "csv")
    ]
    assert described[0] == described[1]


def test_fit_and_predict(houses, tmp_path, capsys):
    model, plot = tmp_path / "model.npz", tmp_path / "model.png"
    run("fit", houses, "--target", "price", "--budget", BUDGET, "--out", model,
        "--plot", plot, "--leave-out", "cheap", "--quiet")  # fmt: skip
    printed = capsys.readouterr().out
    assert re.search(r"town +category +3 kinds, 1 of 399 missing", printed)
    assert float(re.search(r"R² +(\S+)", printed)[1]) > 0.95
    assert re.search(r"what matters: (.*income \d+%|not learnt in this time)", printed)
    assert "certified" in printed
    assert plot.read_bytes().startswith(b"\x89PNG")

    new = make_frame(seed=1)
    new.loc[0, "town"] = "Dax"
    new["rooms"] = new["rooms"].astype(object)
    new.loc[1, "rooms"] = "?"
    new.to_csv(tmp_path / "new.csv", index=False)
    run("predict", model, tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    told = capsys.readouterr().err
    assert "column 'town': 1 rows of kinds that the fit did not have" in told
    assert float(re.search(r"price is known: R² (\S+),", told)[1]) > 0.95
    predicted = pd.read_csv(tmp_path / "out.csv")
    assert predicted.columns.tolist() == ["price"]
    error = np.abs(predicted["price"] - new["price"])[2:]
    assert error.mean() < 0.3
    # and the file is a model that Python can load
    loaded = load(model)
    assert isinstance(loaded, TableModel)
    np.testing.assert_allclose(
        loaded.predict(new)["price"], predicted["price"], rtol=1e-12
    )
    run("predict", model, tmp_path / "new.csv", "--keep", "town, id")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "town,id,price" and lines[1].startswith(f"Dax,{new['id'][0]},")
    for name, message in (("age", "no column 'age'"), ("price", "it is predicted")):
        with pytest.raises(SystemExit):
            run("predict", model, tmp_path / "new.csv", "--keep", name)
        assert message in capsys.readouterr().err


def test_quantiles(houses, tmp_path, capsys):
    model = tmp_path / "model.npz"
    run("fit", houses, "--target", "price", "--quantiles", "0.9,0.1,0.5", "--budget",
        BUDGET, "--out", model, "--leave-out", "cheap,id", "--quiet", "--test", 0,
        "--plot", tmp_path / "model.png")  # fmt: skip
    assert "not seen" not in capsys.readouterr().out
    found = load(model).predict(make_frame(seed=2))
    assert found.columns.tolist() == ["price_0.1", "price_0.5", "price_0.9"]
    assert (np.diff(found, axis=1) >= 0).all()
    y = make_frame(seed=2)["price"]
    inside = ((found["price_0.1"] <= y) & (y <= found["price_0.9"])).mean()
    assert inside == pytest.approx(0.8, abs=0.15)


@pytest.mark.parametrize("flags", [(), ("--classes",)])
def test_classes(flags, tmp_path, capsys):
    frame = make_frame().drop(columns=["price", "id"])
    if flags:
        frame["cheap"] = (frame["cheap"] == "yes").astype(int)
    frame.to_csv(tmp_path / "houses.csv", index=False)
    run("fit", tmp_path / "houses.csv", "--target", "cheap", "--budget", BUDGET, *flags,
        "--out", tmp_path / "model.npz", "--quiet",
        "--plot", tmp_path / "model.png")  # fmt: skip
    printed = capsys.readouterr().out
    assert float(re.search(r"accuracy +(\S+)", printed)[1]) > 0.85
    found = load(tmp_path / "model.npz").predict(frame)
    labels = ["0", "1"] if flags else ["no", "yes"]
    assert found.columns.tolist() == ["cheap", *(f"P(cheap={one})" for one in labels)]
    np.testing.assert_allclose(found.iloc[:, 1:].sum(axis=1), 1)


def test_importances_are_those_of_columns():
    frame = make_frame()
    frame.loc[:40, "income"] = np.nan
    frame = frame.drop(columns=["cheap", "id"])
    # of which it takes one, but for a machine that others use
    model = TableModel.fit(frame, "price", budget="20 s", random_state=0)
    shares = model.get_importances()
    assert set(shares.index) == {"income", "rooms", "town", "sold"}
    assert shares.sum() == pytest.approx(1)
    assert shares["sold"] < 0.25  # which has nothing to do with it


@pytest.mark.parametrize(
    "change, arguments, message",
    [
        (
            lambda frame: frame.assign(
                income=frame["income"].astype(object).where(frame.index != 7, "lots")
            ),
            [],
            r"row 8 below the names: 'lots' is not a number .*; mend the file",
        ),
        (lambda frame: frame, ["--target", "prise"], "no column 'prise'; the file has"),
        (lambda frame: frame, ["--categories", "toun"], "no column 'toun'"),
        (lambda frame: frame, ["--quantiles", "a,b"], "quantiles must be numbers"),
        (lambda frame: frame, ["--budget", "soon"], "budget must be seconds"),
        (
            lambda frame: frame,
            ["--quantiles", "0.1,0.9", "--classes"],
            "not of classes",
        ),
        (lambda frame: frame[["price", "country"]], [], "no column is left"),
        (lambda frame: frame, ["--target", "id"], "cannot be predicted.*400 different"),
        (lambda frame: frame, ["--target", "sold"], "cannot be predicted.*in days"),
        (lambda frame: frame, ["--target", "country"], "cannot be predicted.*always"),
        (lambda frame: frame, ["--quantiles", "0.5,1.5"], "1.5"),
        (lambda frame: frame[:5], [], "values to learn from; 10 are needed"),
    ],
)
def test_errors_are_a_line_that_names_the_place(
    change, arguments, message, tmp_path, capsys
):
    path = tmp_path / "houses.csv"
    change(make_frame()).to_csv(path, index=False)
    if "--target" not in arguments:
        arguments = ["--target", "price", *arguments]
    with pytest.raises(SystemExit) as end:
        run("fit", path, *arguments, "--test", 0, "--quiet")
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert re.search(message, told)
    assert told.startswith("pskernels fit: ") and told.count("\n") == 1


def test_rows_of_errors_are_those_of_the_file(tmp_path, capsys):
    """Whatever part of the rows is fitted."""
    frame = make_frame()
    frame["price"] = frame["price"].astype(object)
    frame.loc[123, "price"] = "much"
    frame.to_csv(tmp_path / "houses.csv", index=False)
    with pytest.raises(SystemExit):
        run("fit", tmp_path / "houses.csv", "--target", "price", "--quiet")
    assert "column 'price', row 124 below the names: 'much'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "is empty"),
        ("a,a\n1,2\n", "two columns 'a'"),
        ("a,b\n1,2,3,4\n1\n", "more cells than there are names"),
    ],
)
def test_files_that_are_no_tables(text, message, tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(SystemExit):
        run("fit", path, "--target", "a")
    assert message in capsys.readouterr().err


def test_predict_names_what_is_missing(houses, tmp_path, capsys):
    model = TableModel.fit(
        read_table(houses).drop(columns=["cheap", "id"]), "price", budget=BUDGET
    )
    model.save(tmp_path / "model.npz")
    make_frame().drop(columns="town").to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(SystemExit):
        run("predict", tmp_path / "model.npz", tmp_path / "new.csv")
    assert "no column 'town'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run("predict", tmp_path / "nothing.npz", tmp_path / "new.csv")
    assert "there is no file" in capsys.readouterr().err


def test_a_target_that_is_not_known_yet(houses, tmp_path, capsys):
    frame = read_table(houses).drop(columns=["cheap", "id"])
    model = TableModel.fit(frame, "price", budget=BUDGET)
    model.save(tmp_path / "model.npz")
    for blank in ("", "TBD"):
        frame.assign(price=blank).to_csv(tmp_path / "new.csv", index=False)
        run("predict", tmp_path / "model.npz", tmp_path / "new.csv")
        printed = capsys.readouterr()
        assert len(printed.out.splitlines()) == len(frame) + 1
        assert "no scores" in printed.err


def test_one_level(houses, tmp_path):
    model = tmp_path / "model.npz"
    run("fit", houses, "--target", "price", "--quantiles", "0.9", "--budget", BUDGET,
        "--leave-out", "cheap,id", "--quiet", "--out", model)  # fmt: skip
    found = load(model).predict(make_frame(seed=3))
    assert found.columns.tolist() == ["price_0.9"]
    below = (make_frame(seed=3)["price"] <= found["price_0.9"]).mean()
    assert 0.7 < below < 1


def test_columns_are_the_same_for_fit_and_scores(tmp_path, capsys):
    """A kind that only held-out rows have is one of those that were told."""
    frame = make_frame().drop(columns=["cheap", "id"])
    frame["rooms"] = frame["rooms"].astype(object)
    frame.loc[7, "rooms"] = "many"
    frame.to_csv(tmp_path / "houses.csv", index=False)
    for seed in range(2):
        run("fit", tmp_path / "houses.csv", "--target", "price", "--budget", BUDGET,
            "--out", tmp_path / "model.npz", "--quiet", "--seed", seed,
            "--test", 0.5)  # fmt: skip
        assert re.search(r"rooms +category +6 kinds", capsys.readouterr().out)


def test_classes_of_any_name(tmp_path, capsys):
    """Of which one is "none", and most are numbers."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=300)
    labels = np.array(["none", "0", "1", "12", "A"])[np.digitize(a, [-1, 0, 0.5, 1])]
    pd.DataFrame({"a": a, "code": labels}).to_csv(tmp_path / "t.csv", index=False)
    run("fit", tmp_path / "t.csv", "--target", "code", "--classes", "--budget", BUDGET,
        "--out", tmp_path / "model.npz", "--quiet")  # fmt: skip
    assert "left out" not in capsys.readouterr().out
    assert set(load(tmp_path / "model.npz").pipeline[-1].classes_) == set(labels)


def test_whole_numbers_are_the_same_kind_with_gaps_and_without():
    frame = make_frame().drop(columns=["cheap", "id"])
    gaps = frame.assign(rooms=frame["rooms"].where(frame.index != 3))
    columns = describe_columns(gaps.drop(columns="price"), categories=["rooms"])
    model = TableModel.fit(gaps, "price", columns=columns, budget=BUDGET)
    assert model.count_unknown(frame) == {}


def test_names_and_days_of_other_kinds(tmp_path):
    with pytest.raises(ValueError, match="must be texts, got 0"):
        describe_columns(pd.DataFrame(np.zeros((20, 2))))
    days = pd.DataFrame({"day": [f"{k % 28 + 1:02d}/02/2020" for k in range(60)]})
    assert describe_columns(days)[0].kind == "category"  # in which order is unknown
    (tmp_path / "t.csv").write_text("a, b\n1,2\n\n3,4\n")
    assert read_table(tmp_path / "t.csv").columns.tolist() == ["a", "b"]
    assert len(read_table(tmp_path / "t.csv")) == 3


def test_what_matters_is_told_only_if_it_was_learnt(tmp_path, capsys):
    frame = make_frame(1500).drop(columns=["cheap", "id"])
    frame.to_csv(tmp_path / "houses.csv", index=False)
    run("fit", tmp_path / "houses.csv", "--target", "price", "--budget", "0.01 s",
        "--out", tmp_path / "model.npz", "--quiet")  # fmt: skip
    assert "what matters: not learnt in this time" in capsys.readouterr().out
    model = load(tmp_path / "model.npz")
    assert not model.has_learnt_metric()
    with pytest.raises(ValueError, match="was not learnt"):
        model.get_importances()


def test_decimal_commas(tmp_path):
    """As spreadsheets of half of Europe write them; texts keep their commas."""
    path = tmp_path / "t.csv"
    path.write_text("a;b;c;d\n1,5;x, y;1.5;NA\n-2;z;2,5;1e3\n3,25e-1;;7;2,5\n")
    frame = read_table(path)
    assert frame["a"].tolist() == ["1.5", "-2", "3.25e-1"]
    assert frame["b"].tolist() == ["x, y", "z", ""]
    assert frame["c"].tolist() == ["1.5", "2,5", "7"]  # which is the point is unknown
    assert frame["d"].tolist() == ["NA", "1e3", "2.5"]
    path.write_text("a;b\n1,234;1\n567;2\n12,000;3\n")  # thousands, or not
    assert read_table(path)["a"].tolist() == ["1,234", "567", "12,000"]
    path.write_text('a,b\n"1,5",2\n')
    assert read_table(path)["a"].tolist() == ["1,5"]


@pytest.mark.parametrize(
    "labels", [np.array([3, 10]), np.array([False, True]), np.array(["no", "yes"])]
)
def test_classes_are_predicted_as_they_were_given(labels, tmp_path):
    """Predictions can be compared with the column that was learnt."""
    frame = make_frame().drop(columns=["price", "id"])
    frame["cheap"] = labels[(frame["cheap"] == "yes").to_numpy().astype(int)]
    model = TableModel.fit(frame, "cheap", classes=True, budget=BUDGET)
    model.save(tmp_path / "model.npz")
    for one in (model, load(tmp_path / "model.npz")):
        found = one.predict(frame)["cheap"]
        assert found.to_numpy().dtype.kind == frame["cheap"].to_numpy().dtype.kind
        agreement = (found == frame["cheap"]).mean()
        assert agreement > 0.9
        assert one.score(frame)["accuracy"] == pytest.approx(agreement)
    texts = frame["cheap"].astype(str).to_numpy()
    counts = count_pairs(found, texts, list(model.pipeline[-1].classes_))
    assert np.trace(counts) == pytest.approx(agreement * len(frame))
    assert counts.sum() == len(frame)


def test_columns_that_are_categories_stay_so():
    frame = make_frame().assign(rooms=lambda f: f["rooms"].astype("category"))
    kinds = {one.name: one.kind for one in describe_columns(frame)}
    assert kinds["rooms"] == "category"
    assert kinds["income"] == "number"
    many = pd.DataFrame({"a": pd.Series(range(1001)).astype("category")})
    assert describe_columns(many)[0].note == "left out: 1,001 different texts"


def test_whole_numbers_as_texts_are_one_kind():
    """Programs write 3 as 3.0 where other rows of the column have gaps."""
    frame = make_frame().drop(columns=["cheap", "id"])
    columns = describe_columns(frame.drop(columns="price"), categories=["rooms"])
    model = TableModel.fit(frame, "price", columns=columns, budget=BUDGET)
    texts = frame.assign(rooms=frame["rooms"].map("{}.0".format))
    assert model.count_unknown(texts) == {}
    pd.testing.assert_frame_equal(model.predict(texts), model.predict(frame))


@pytest.mark.parametrize(
    ("cells", "hint"),
    [
        ([f"{day}.{month}.2021" for day in range(1, 29) for month in (1, 12)], "dates"),
        ([f"2021-{month:02}" for month in range(1, 13)], "dates"),
        ([f"Feb {day}, 2021" for day in range(1, 28)], "dates"),
        ([f"MARCH {day}, 2021" for day in range(1, 28)], "dates"),
        ([f"{day:02}-Feb-21" for day in range(1, 28)], "dates"),
        ([f"{number},040" for number in range(1, 100)], "numbers"),
        ([f"{number}%" for number in range(100)], "numbers"),
        ([f"€ {number}" for number in range(100)], "numbers"),
        ([f"house {number}" for number in range(100)], ""),
        (["May", "Dec"] * 20, ""),
        (["18-24", "25-34", "0-5"] * 9, ""),
        (["Mark 1995", "Mars 2000"] * 9, ""),
        (["1st", "2nd", "4WD", "12B", "1.0.2"] * 9, ""),
    ],
)
def test_texts_that_a_reader_would_take_for_more(cells, hint):
    (column,) = describe_columns(pd.DataFrame({"a": cells}))
    assert column.kind in ("", "category")
    expected = {"dates": "must be written 2021-12-31", "numbers": "without units"}
    assert expected.get(hint, "") in column.note
    assert ("must be" in column.note) == bool(hint)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", "soon"], "budget must be"),
        (["--test", "500"], "--test must be a share"),
        (["--out", "nowhere/model.npz"], "there is no folder"),
        (["--out", "."], "is a folder"),
        (["--plot", "model.xyz"], "must end with one of"),
        (["--target", "income", "--classes"], "too many for classes"),
    ],
)
def test_what_cannot_be_done_is_told_before_the_fit(options, message, houses, capsys):
    with pytest.raises(SystemExit):
        run("fit", houses, "--target", "price", *options)
    told = capsys.readouterr()
    assert message in told.err
    assert "fitting" not in told.out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG\r\n", "is not text in UTF-8"),
        ("a,price\nOrl\u00e9ans,1\n".encode("latin-1"), "is not text in UTF-8"),
        (b"# A page\n\nof text, with commas\n", "no table of as many cells"),
        (b"income,price\n", "no rows"),
    ],
)
def test_files_of_other_kinds(content, message, tmp_path, capsys):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(SystemExit):
        run("fit", path, "--target", "price")
    assert message in capsys.readouterr().err


def test_no_rows_to_predict():
    frame = make_frame().drop(columns=["cheap", "id"])
    model = TableModel.fit(frame, "price", budget=BUDGET)
    with pytest.raises(ValueError, match="no rows to predict"):
        model.predict(frame[:0])


def test_classes_with_gaps_and_of_other_forms():
    frame = make_frame().drop(columns=["price", "id"])
    cheap = (frame["cheap"] == "yes").astype("boolean")
    cheap[3] = pd.NA
    model = TableModel.fit(frame.assign(cheap=cheap), "cheap", classes=True, budget=1)
    assert model.predict(frame)["cheap"].dtype == bool
    numbers = cheap[cheap.notna()].astype(float)
    frame = frame[cheap.notna()]
    texts = frame.assign(cheap=numbers.map("{:.1f}".format))
    model = TableModel.fit(texts, "cheap", classes=True, budget=1)
    assert model.score(frame.assign(cheap=numbers.map("{:.0f}".format)))[
        "accuracy"
    ] > 0.9  # fmt: skip


def test_columns_that_matter_alike_are_learnt():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"])
    frame["y"] = np.sin(2 * frame["a"]) + np.sin(2 * frame["b"])
    model = TableModel.fit(frame, "y", budget=2)
    assert model.get_importances().min() > 0.4
    auto = AutoKernelRegressor(budget=2, random_state=0).fit(
        frame[["a", "b"]], frame["y"]
    )
    assert "b: " in auto.report_.split("importance of features")[1]


def test_whoever_reads_may_have_seen_enough(houses):
    """A closed pipe ends a command without a word."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-P", "-m", "pskernels", "info"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == 1


@pytest.mark.parametrize("numbers", [["0", "1"], ["0.0", "1.0"], ["-1", "1"]])
def test_numbers_of_classes(numbers):
    assert are_few_numbers(pd.Series(numbers * 5 + [None]))
    assert not are_few_numbers(pd.Series([*numbers, "0.5"]))


def test_few_whole_numbers_may_be_classes(houses, tmp_path, capsys):
    run("fit", houses, "--target", "rooms", "--budget", "1", "--quiet",
        "--out", tmp_path / "model.npz")  # fmt: skip
    assert "--classes if they are classes" in capsys.readouterr().out


def test_classes_that_are_missing_are_no_class(tmp_path, capsys):
    """As they are none of the kinds of other columns."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=200)})
    frame["c"] = np.where(frame["a"] > 0, "yes", "-")
    frame.loc[::5, "c"] = "NA"
    frame.to_csv(tmp_path / "t.csv", index=False)
    run("fit", tmp_path / "t.csv", "--target", "c", "--budget", BUDGET, "--quiet",
        "--classes", "--out", tmp_path / "model.npz")  # fmt: skip
    printed = capsys.readouterr().out
    assert "left out, without c: 40 of these rows" in printed
    for label in ("yes", "-"):
        assert re.search(f"classes of c:.* {label} {sum(frame['c'] == label)}", printed)
    assert set(load(tmp_path / "model.npz").pipeline[-1].classes_) == {"yes", "-"}


def test_numbers_that_no_fitted_row_has(tmp_path, monkeypatch):
    """A model has the column all the same, as it was told."""
    frame = make_frame(100)[["income", "rooms", "price"]]
    frame["rare"] = np.nan
    columns = describe_columns(frame.assign(rare=frame["rooms"]).drop(columns="price"))
    model = TableModel.fit(frame, "price", columns=columns, budget=BUDGET)
    with monkeypatch.context() as patch:  # however little there was time for
        patch.setattr(TableModel, "has_learnt_metric", lambda model: True)
        assert set(model.get_importances().index) == {"income", "rooms", "rare"}
    path = tmp_path / "model.npz"
    model.save(path)
    found = load(path).predict(frame.assign(rare=1.0))
    pd.testing.assert_frame_equal(found, model.predict(frame.assign(rare=1.0)))


def test_days_of_any_year():
    """Programs write 9999-12-31 where there is no end."""
    days = pd.Series([f"2020-01-{k % 28 + 1:02d}" for k in range(60)])
    days[7] = "2020-02-30"
    with pytest.raises(ValueError, match="row 8 below.*'2020-02-30' is not a date"):
        describe_columns(pd.DataFrame({"day": days}))
    days[7] = "9999-12-31"
    if pd.__version__ < "3":  # dates are in nanoseconds
        with pytest.raises(ValueError, match="row 8 below.*'9999-12-31'"):
            describe_columns(pd.DataFrame({"day": days}))
        return
    frame = pd.DataFrame({"day": days, "y": np.arange(60.0) % 7})
    (column,) = describe_columns(frame[["day"]])
    assert column.kind == "date"
    prepared = TableModel.fit(frame, "y", budget=BUDGET).prepare(frame)
    expected = np.array(days, "datetime64[D]").astype(float)
    np.testing.assert_array_equal(prepared["day"], expected)


def test_commas_are_decimal_in_a_file_and_its_model(tmp_path, capsys):
    path, new = tmp_path / "t.csv", tmp_path / "new.csv"
    path.write_text("a;b;c\n0,125;1,5;1,250\n0,250;2;2,500\n")
    frame = read_table(path)
    assert frame["a"].tolist() == ["0.125", "0.250"]
    assert frame["c"].tolist() == ["1.250", "2.500"]  # by what other columns show
    assert frame.attrs["decimal_commas"]
    rows = make_frame(60)[["income", "price"]].round(3)
    rows.to_csv(path, index=False, sep=";", decimal=",")
    run("fit", path, "--target", "price", "--budget", BUDGET, "--quiet",
        "--out", tmp_path / "model.npz")  # fmt: skip
    new.write_text("income;n\n1,250;2\n3,500;3\n")  # which alone could be thousands
    capsys.readouterr()
    run("predict", tmp_path / "model.npz", new)
    found = [float(line) for line in capsys.readouterr().out.splitlines()[1:]]
    expected = load(tmp_path / "model.npz").predict(
        pd.DataFrame({"income": [1.25, 3.5]})
    )
    np.testing.assert_allclose(found, expected["price"])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (Column("price", "number"), "'price' is to be predicted"),
        (Column("nothing", "number"), "no column 'nothing'"),
        (Column("income", "numeric"), "must be one of number, date, category"),
    ],
)
def test_columns_that_cannot_be_learnt_from(column, message):
    with pytest.raises(ValueError, match=message):
        TableModel.fit(make_frame(50), "price", columns=[column])


def test_cells_that_no_fit_can_take():
    frame = make_frame(50)[["income", "price"]]
    frame.loc[3, "income"] = 1e300
    with pytest.raises(ValueError, match="'income', row 4 below.*is too large"):
        TableModel.fit(frame, "price", budget=BUDGET)
    twice = frame.iloc[:, [0, 0, 1]]
    for function in (describe_columns, lambda table: TableModel.fit(table, "price")):
        with pytest.raises(ValueError, match="two columns 'income'"):
            function(twice)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--out", "houses.csv"], "would be overwritten"),
        (["--out", "same.png", "--plot", "same.png"], "would be overwritten"),
        (["--test", 0.001], "less than two of 399 rows"),
    ],
)
def test_files_are_not_overwritten(options, message, houses, monkeypatch, capsys):
    monkeypatch.chdir(houses.parent)
    before = houses.read_bytes()
    with pytest.raises(SystemExit):
        run("fit", "houses.csv", "--target", "price", *options)
    assert message in capsys.readouterr().err
    assert houses.read_bytes() == before


def test_files_that_need_more(tmp_path, monkeypatch, capsys):
    path = tmp_path / "t.parquet"
    make_frame(20).set_index("id").to_parquet(path)
    assert "id" in read_table(path).columns
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(pd, "read_parquet", _without_pyarrow)
    with pytest.raises(SystemExit):
        run("fit", path, "--target", "price")
    assert "need pyarrow: pip install" in capsys.readouterr().err
    path = tmp_path / "t.csv"
    path.write_text("a" * 200_000 + ",b\n1,2\n")
    with pytest.raises(SystemExit):
        run("fit", path, "--target", "b")
    assert "no line of names" in capsys.readouterr().err


def _without_pyarrow(path):
    raise ImportError("Unable to find a usable engine")  # as pandas does


def test_categories_of_numbers_are_predicted_as_numbers():
    frame = make_frame(200)[["income", "rooms"]]
    frame["rooms"] = (frame["income"] > 3).astype(int).astype("category")
    model = TableModel.fit(frame, "rooms", budget=BUDGET)
    assert model.predict(frame)["rooms"].dtype == np.int64
    arrow = frame.assign(rooms=frame["income"].astype("double[pyarrow]") // 1)
    assert describe_columns(arrow)[1].kind == "number"
