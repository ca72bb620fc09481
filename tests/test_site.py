"""Pages of the site run from top to bottom, and examples make their pictures.

Whether they run is seen when the site is built, too, by .ci/run; what they print is
compared by `bash .ci/long marked`."""

import ast
import re
import runpy
import sys
from pathlib import Path

import pytest

import pskernels
from pskernels import theory

plt = pytest.importorskip("matplotlib.pyplot")
estimators = pytest.importorskip("pskernels.estimators")

ROOT = Path(__file__).parent.parent
DOCS, EXAMPLES = ROOT / "docs", ROOT / "examples"
FENCE = re.compile(r"^```(\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?")

# Programs for clusters, which have tests of their own.
PROGRAMS = {"local_cluster.py", "scheduler.py"}
MAX_LINES = 40
# How far a printed number may be from that of the page: other machines round otherwise.
ABSOLUTE, RELATIVE = 0.03, 0.1

# What these print is looked at by test_docs.py.
OTHERS = {DOCS / "estimators.md", DOCS / "functions.md"}


def read_blocks(page):
    """List (kind, text) of the fenced blocks of a page."""
    return FENCE.findall(page.read_text())


def list_pages():
    """List the pages with code to run."""
    pages = []
    for page in sorted({*DOCS.rglob("*.md")} - OTHERS):
        if any(kind == "python" for kind, _ in read_blocks(page)):
            pages.append(pytest.param(page, id=str(page.relative_to(DOCS))))
    return pages


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    """Run in a folder of its own, and show no window."""
    plt.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    plt.close("all")


def is_printed(expected, printed):
    """Tell whether words are the same, and numbers nearly so."""
    words = [NUMBER.sub("#", text).split() for text in (expected, printed)]
    numbers = [[float(x) for x in NUMBER.findall(t)] for t in (expected, printed)]
    return words[0] == words[1] and numbers[1] == pytest.approx(
        numbers[0], rel=RELATIVE, abs=ABSOLUTE
    )


# Dask leaves sockets to the garbage collector, pages their memory maps
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("page", list_pages())
@pytest.mark.long
def test_pages_run(page, in_folder, capsys):
    for module in ("pandas", "pyarrow", "distributed"):
        pytest.importorskip(module)
    namespace, printed = {"__name__": "__main__"}, ""
    for kind, text in read_blocks(page):
        if kind in ("python", "{plot}"):
            # the options of a plot, such as ":alt: words"
            code = re.sub(r"\A(:.*\n)+", lambda m: "\n" * m[0].count("\n"), text)
            exec(compile(code, str(page), "exec"), namespace)
            printed = capsys.readouterr().out
            if kind == "{plot}":
                assert plt.get_fignums()
                plt.close("all")
        elif kind == "text":
            assert is_printed(text, printed), f"{page.name} prints\n{printed}"


def test_printed_numbers_are_compared():
    assert is_printed("R²: 0.98, -3.0", "R²: 0.97, -3.01")
    assert not is_printed("R²: 0.98", "R²: 0.7")
    assert not is_printed("R²: 0.98", "error: 0.98")
    assert not is_printed("a 1", "a 1 2")


@pytest.mark.parametrize(
    "script",
    [path for path in sorted(EXAMPLES.glob("*.py")) if path.name not in PROGRAMS],
    ids=lambda path: path.stem,
)
@pytest.mark.long
def test_examples_make_their_picture(script, in_folder, monkeypatch):
    assert len(script.read_text().splitlines()) <= MAX_LINES
    assert ast.get_docstring(ast.parse(script.read_text()))
    monkeypatch.setattr(sys, "argv", [str(script), str(in_folder)])
    runpy.run_path(str(script), run_name="__main__")
    picture = in_folder / f"{script.stem}.png"
    assert picture.stat().st_size > 10_000
    assert f"../examples/{script.name}" in (DOCS / "gallery.md").read_text()


def test_every_public_name_has_its_place():
    reference = "".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    documented = set(re.findall(r"^\.\. (?:auto\w+|data):: (\w+)$", reference, re.M))
    names = {*pskernels.__all__, *estimators.__all__, *theory.__all__}
    assert names <= documented


def test_pages_are_linked():
    """Every page is in a table of contents, and links lead to files that exist."""
    pages = sorted(DOCS.rglob("*.md"))
    listed = {DOCS / "index.md"}
    for page in pages:
        for kind, text in read_blocks(page):
            if kind == "{toctree}":
                lines = [x for x in text.split() if not x.startswith(":")]
                listed |= {page.parent / f"{name}.md" for name in lines}
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
    assert set(pages) <= listed
