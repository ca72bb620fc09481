"""Examples in docstrings and in the README run, and the README names real commands."""

import doctest
import re
from pathlib import Path

import pytest

from pskernels import (
    feature_map,
    gram,
    metrics,
    outputs,
    quantiles,
    sketches,
    solvers,
)

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.parametrize(
    "module", [feature_map, gram, metrics, outputs, quantiles, sketches, solvers]
)
def test_docstring_examples(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.skipif(not README.exists(), reason="outside a checkout")
def test_readme_example_predicts_well(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(example, {})
    printed = capsys.readouterr().out
    gap = re.search(r"certified gap: (\S+) after", printed)
    assert float(gap[1]) <= 1e-6
    assert 0.99 < float(re.search(r"R² on new points: (\S+)", printed)[1]) < 1
