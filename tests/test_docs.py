"""Examples in docstrings and in the README run, and the README names real commands."""

import ast
import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

from pskernels import (
    distribution,
    estimators,
    feature_map,
    fourier,
    gram,
    metrics,
    outputs,
    quantiles,
    sketches,
    softmax,
    solvers,
)
from pskernels.estimators import (
    auto,
    classifier,
    quantile,
    regressor,
    search,
    transformer,
)
from pskernels.theory import advice, bounds, satisfiability, spectrum


def is_estimator(value):
    return inspect.isclass(value) and hasattr(value, "get_params")


README = Path(__file__).parent.parent / "README.md"


@pytest.mark.parametrize(
    "module",
    [
        feature_map,
        fourier,
        gram,
        metrics,
        outputs,
        quantiles,
        sketches,
        softmax,
        solvers,
        distribution,
        auto,
        classifier,
        quantile,
        regressor,
        search,
        transformer,
        advice,
        bounds,
        satisfiability,
        spectrum,
    ],
)
def test_docstring_examples(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    "cls",
    [one for one in map(vars(estimators).get, estimators.__all__) if is_estimator(one)],
)
def test_docstrings_are_complete_in_themselves(cls):
    """Every parameter has an entry of its own, whatever the source refers to."""
    listed = cls.__doc__.partition("\nAttributes\n")[0]
    heads = re.findall(r"^(\w.*) : ", listed, re.M)
    names = {name for head in heads for name in head.split(", ")}
    assert set(inspect.signature(cls).parameters) <= names
    assert "As for `" not in cls.__doc__
    assert cls.__doc__.count("Parameters\n----------\n") == 1


def get_examples(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


@pytest.fixture
def examples():
    """Those of the pages on estimators and on functions."""
    return [
        example
        for name in ("estimators.md", "functions.md")
        for example in get_examples(README.parent / "docs" / name)
    ]


def test_the_first_example_works(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it saves a model
    (example,) = get_examples(README)
    exec(example, {})
    printed = capsys.readouterr().out
    assert float(re.search(r"median error: (\S+)", printed)[1]) < 0.1
    assert float(re.search(r"certified gap: (\S+)", printed)[1]) <= 1e-6
    inside = float(re.search(r"inside: (\S+)", printed)[1])
    assert inside == pytest.approx(0.9, abs=0.03)


def test_links_lead_somewhere():
    folder = README.parent
    for page in (README, *folder.glob("docs/**/*.md"), folder / "CONTRIBUTING.md"):
        for link in re.findall(r"\]\(([\w./-]+\.(?:md|py|png))\)", page.read_text()):
            assert (page.parent / link).exists(), (page.name, link)


@pytest.mark.long
def test_estimators_predict_well(examples, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it saves a model
    exec(examples[0], {})
    printed = capsys.readouterr().out
    assert 0.97 < float(re.search(r"R²: (\S+)", printed)[1]) < 1
    assert re.search(r"best of 30 candidates: {'alpha'", printed)
    inside = float(re.search(r"inside: (\S+)", printed)[1])
    assert inside == pytest.approx(0.8, abs=0.05)
    assert float(re.search(r"right: (\S+)", printed)[1]) > 0.8


@pytest.mark.long
def test_metrics_are_learnt(examples, capsys):
    exec(examples[1], {})
    printed = capsys.readouterr().out
    plain, learnt = map(float, re.findall(r"R²: (\S+)", printed))
    assert learnt > 0.95 > 0.8 > plain
    assert "budget 5 s" in printed


def test_intervals_keep_their_word(examples, capsys):
    exec(examples[2], {})
    printed = capsys.readouterr().out
    assert float(re.search(r"95 %: (\S+)", printed)[1]) == pytest.approx(0.95, abs=0.02)
    assert float(re.search(r"log-loss: (\S+)", printed)[1]) < 0.8


def test_functions_predict_well(examples, capsys):
    exec(examples[3], {})
    printed = capsys.readouterr().out
    gap = re.search(r"certified gap: (\S+) after", printed)
    assert float(gap[1]) <= 1e-6
    assert 0.99 < float(re.search(r"R² on new points: (\S+)", printed)[1]) < 1


def test_example_of_several_outputs(examples, capsys):
    exec(examples[4], {})
    printed = capsys.readouterr().out
    assert float(re.search(r"certified gap: (\S+)", printed)[1]) <= 1e-6
    assert float(re.search(r"crossing: (\S+)", printed)[1]) < 1e-3
    assert float(re.search(r"80 %: (\S+)", printed)[1]) == pytest.approx(0.8, abs=0.05)


def test_example_of_the_theory(examples, capsys):
    exec(examples[5], {})
    printed = capsys.readouterr().out
    assert float(re.search(r"(\d+) B", printed)[1]) <= 200e6
    assert int(re.search(r"d_n = (\d+)", printed)[1]) > 1
    few, many = re.findall(r"keep them: (\w+); isometry (\S+),", printed)
    assert few[0] == "False" and many[0] == "True" and float(many[1]) < 0.5


def test_tests_that_numerics_names_exist():
    """Every promise of docs/numerics.md has its test."""
    folder = Path(__file__).parent
    text = (folder.parent / "docs" / "numerics.md").read_text()
    tests = {file.name: file.read_text() for file in folder.glob("*.py")}
    files = set(re.findall(r"\b((?:test_|fuzz_|soak)\w*\.py)", text))
    functions = set(re.findall(r"\b(test_\w+)\b(?!\.py)", text))
    assert len(files) > 5 and len(functions) > 20
    assert files <= tests.keys()
    defined = set(re.findall(r"^def (test_\w+)\(", "".join(tests.values()), re.M))
    assert functions - {file[:-3] for file in files} <= defined


@pytest.mark.parametrize(
    "path", sorted(README.parent.glob("bench/**/*.py")), ids=lambda path: path.stem
)
def test_what_benchmarks_import_is_there(path):
    """They run for minutes, with packages that tests do without: only names here."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and "pskernels" in (node.module or ""):
            module = importlib.import_module(node.module)
            for name in node.names:
                if not hasattr(module, name.name):  # a module of a package
                    importlib.import_module(f"{node.module}.{name.name}")
