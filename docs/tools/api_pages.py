"""A Sphinx extension: writes docs/api/GROUP.rst from docs/api_reference.py before a build.

sphinx.ext.autosummary then makes a page for each name in their tables. All of these pages are
generated, so none is committed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from api_reference import DATA, GROUPS, Group, Section, listed, resolved
from generated import headed, refresh
from sphinx.application import Sphinx
from sphinx.config import Config

OURS = ("fedsuplin", "fedsuplin_ext", "fedsuplin_plugins")


def describe_bases(app: Sphinx, config: Config) -> None:
    """Tell the template which classes extend public ones, and which extend private ones."""
    public = [resolved(name) for name in listed()]
    bases = {
        name: [base for base in thing.__bases__ if base.__module__.partition(".")[0] in OURS]
        for name in listed()
        if isinstance(thing := resolved(name), type)
    }
    private = {name for name, ours in bases.items() if any(base not in public for base in ours)}
    config.autosummary_context |= {
        "extends_public": [name for name, ours in bases.items() if ours and name not in private],
        "extends_private": sorted(private),
    }


def write_pages(app: Sphinx, config: Config) -> None:
    homes = home_pages()
    pages = {f"{key}.rst": page(group, homes) for key, group in GROUPS.items()}
    by_autosummary = {f"{name}.rst" for name in homes.values() if name not in DATA}
    refresh(Path(app.srcdir) / "api", pages, by_autosummary)


def home_pages() -> dict[str, str]:
    """For each listed name, the first listed name of the same object: the one with a page."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(resolved(name)), name) for name in listed()}


def page(group: Group, homes: dict[str, str]) -> str:
    sections = [table(section, homes) for section in group.sections if section.names]
    return f"{headed(group.title, '=')}\n{group.summary}\n\n" + "\n".join(sections)


def table(section: Section, homes: dict[str, str]) -> str:
    """Names with a page of their own, then names whose page belongs to another table."""
    own = [name for name in section.names if homes[name] == name and name not in DATA]
    others = [homes[name] for name in section.names if homes[name] != name]
    text = headed(section.title, "-")
    if own:
        text += "\n" + autosummary(own, "   :toctree: .\n")
    text += "".join(data(name) for name in section.names if name in DATA and homes[name] == name)
    if others:
        text += f"\nAlso there, and described elsewhere:\n\n{autosummary(others, '')}"
    return text


def data(name: str) -> str:
    kind, text = DATA[name]
    return f"\n.. py:data:: {name}\n   :type: {kind}\n\n   {text}\n"


def autosummary(names: list[str], option: str) -> str:
    rows = "".join(f"   ~{name}\n" for name in names)
    return f".. autosummary::\n{option}   :nosignatures:\n\n{rows}"


def link_groups(app: Sphinx, docname: str, source: list[str]) -> None:
    """Link the groups in the table of api/index.md to their pages, which GitHub does not have."""
    if docname == "api/index":
        for key, group in GROUPS.items():
            link = f"| [{group.title}]({key}.rst) |"
            source[0] = source[0].replace(f"| {group.title} |", link)


def readable(
    app: Sphinx,
    what: str,
    name: str,
    obj: Any,
    options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """A default that a factory makes, of a dataclass, as Python that Sphinx can parse."""
    return signature and signature.replace("<factory>", "..."), returns


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", describe_bases)
    app.connect("source-read", link_groups)
    app.connect("autodoc-process-signature", readable)
    app.connect("config-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
