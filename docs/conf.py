"""Sphinx: ``sphinx-build -W --keep-going -b html docs docs/_build/html``.

Pages are Markdown.  If one has a ``{plot}`` block, its ``python`` blocks run, too, from
top to bottom in one namespace, all by matplotlib's plot directive.
"""

import re
import tempfile
from itertools import count

from pskernels import __version__ as release

project = "pskernels"
author = "The pskernels developers"
copyright = "The pskernels developers, BSD-3-Clause"
version = release

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "matplotlib.sphinxext.plot_directive",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autosummary_generate = True
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_param = False
napoleon_use_rtype = False

smartquotes = False
default_role = "py:obj"  # names in docstrings become links, where there is a page

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = "pskernels"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False

plot_formats = [("png", 144)]
plot_include_source = True
plot_html_show_formats = False
plot_html_show_source_link = False
plot_working_directory = tempfile.mkdtemp()  # where pages and examples write files
plot_apply_rcparams = True
plot_rcparams = {
    "figure.figsize": (7.0, 3.6),
    "figure.constrained_layout.use": True,
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}

BLOCK = re.compile(r"^```(python|\{plot\})\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run_blocks(app, docname, source):
    """Give the blocks of a page to the plot directive, if it has a plot of its own."""
    if not re.search(r"^```{plot}$", source[0], re.MULTILINE):
        return
    contexts, numbers = iter(["reset"]), count(1)
    prefix = docname.replace("/", "-")

    def convert(block):
        lines = block[2].splitlines()
        options = [
            f":context: {next(contexts, 'close-figs')}",
            f":filename-prefix: {prefix}-{next(numbers)}",
        ]
        if block[1] == "python":
            options.append(":nofigs:")
        while lines and lines[0].startswith(":"):
            options.append(lines.pop(0))
        body = "\n".join("   " + line for line in [*options, "", *lines])
        return f"```{{eval-rst}}\n.. plot::\n{body}\n```"

    source[0] = BLOCK.sub(convert, source[0])


# What reStructuredText takes for its own, in docstrings that are written to be read as
# they are: names such as coef_, absolute values |u|, numbers of references [1]_.
SPECIAL = re.compile(
    r"(?P<kept>``.*?``|`.*?`|^ *>>>.*?$)|(?<![\w.])(?P<name>\w+)_(?!\w)|(?P<bar>\|)"
    r"|\[(?P<number>\d)\]_|^\.\. \[(?P<item>\d)\](?= )",
    re.DOTALL | re.MULTILINE,
)


def escape(match):
    """Write what is special so that it stands for itself."""
    kept, name, bar, number, item = match.group("kept", "name", "bar", "number", "item")
    if kept:
        return kept
    if name:
        return f"{name}\\_"
    if bar:
        return "\\|"
    return f"[{number}]" if number else f"{item}."


def escape_docstring(app, what, name, obj, options, lines):
    """Escape what is special in a docstring, after napoleon has found its sections."""
    text = SPECIAL.sub(escape, "\n".join(lines))
    # several names in one field: spaces that do not part them, or a type is seen there
    fields = re.compile(r"^:(?:ivar|vartype) [^:]*:", re.MULTILINE)
    text = fields.sub(lambda field: field[0].replace(", ", ",\N{NO-BREAK SPACE}"), text)
    lines[:] = text.split("\n")


def setup(app):
    app.connect("source-read", run_blocks)
    app.connect("autodoc-process-docstring", escape_docstring, priority=900)
