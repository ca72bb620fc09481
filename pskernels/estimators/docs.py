"""Docstrings of classes, complete in themselves: "As for `X`" becomes what X says.

Parameters that several estimators have are described once, in the source, and `help` of
each of them says it all.
"""

import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence

Entry = tuple[str, str]  # head and body
Known = dict[tuple[str, str], dict[str, Entry]]

SECTIONS = ("Parameters", "Attributes")
# Of more names, what is different is said of those that it names, or of the last one.
FEW_NAMES = 3
REFERENCE = re.compile(r"As for `(\w+)`[,;.:]?\s*(.*)", re.DOTALL)


def complete_docstrings(classes: Sequence[type]) -> None:
    """Complete the docstrings of classes, those that others refer to first."""
    known: Known = {}
    for cls in classes:
        if cls.__doc__ is None:  # python -OO
            return
        sections = _split_sections(inspect.cleandoc(cls.__doc__))
        for title in SECTIONS:
            if title in sections:
                entries = [
                    completed
                    for entry in _split_entries(sections[title])
                    for completed in _complete(entry, title, known)
                ]
                sections[title] = "\n".join(
                    f"{head}\n{textwrap.indent(body, '    ')}".rstrip("\n")
                    for head, body in entries
                )
                known[cls.__name__, title] = {
                    name: (head, body)
                    for head, body in entries
                    for name in _get_names(head)
                }
        cls.__doc__ = "\n\n".join(
            f"{title}\n{'-' * len(title)}\n{text}" if title else text
            for title, text in sections.items()
        )


def _split_sections(text: str) -> dict[str, str]:
    """Split a docstring into {title: text}, the first of no title."""
    parts = re.split(r"\n\n(\w[\w ]*)\n-{3,}\n", text)
    return {"": parts[0].rstrip()} | {
        title: body.rstrip()
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def _split_entries(section: str) -> Iterator[Entry]:
    """Yield (head, body) of the entries of a section."""
    for part in re.split(r"\n(?=\S)", section):
        head, _, body = part.partition("\n")
        yield head, textwrap.dedent(body)


def _get_names(head: str) -> list[str]:
    return [name.strip() for name in head.partition(" : ")[0].split(",")]


def _complete(entry: Entry, title: str, known: Known) -> Iterator[Entry]:
    """Yield an entry for each name, if the entry refers to those of another class."""
    head, body = entry
    found = REFERENCE.match(body)
    source = known.get((found[1], title)) if found else None
    names = _get_names(head)
    if found is None or source is None or not all(name in source for name in names):
        yield entry
        return
    more = " ".join(found[2].split())
    told = [name for name in names if re.search(rf"\b{name}\b", more)] or names[-1:]
    for name in names:
        other_head, text = source[name]
        if more and (name in told or len(names) <= FEW_NAMES):
            text = f"{text}\n{textwrap.fill(_capitalise(more), 84)}"
        own_type = head.partition(" : ")[2]
        type_ = own_type or other_head.partition(" : ")[2]
        yield f"{name} : {type_}" if type_ else name, text


def _capitalise(text: str) -> str:
    """Make the first letter a capital, unless it is that of code."""
    return text if "=" in text.split()[0] else text[0].upper() + text[1:]
