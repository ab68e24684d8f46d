"""A Sphinx extension that writes docs/api/GROUP.rst from docs/api_reference.py before a build.

sphinx.ext.autosummary then makes a page for each name in their tables. All of these pages are
generated, so none is committed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from api_reference import DATA, GROUPS, Group, Section, find_home_pages, list_names, resolve
from docutils.nodes import Element
from generated import refresh, underline
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment

OURS = ("fedsuplin", "fedsuplin_ext", "fedsuplin_plugins")


def describe_bases(app: Sphinx, config: Config) -> None:
    """List for the template the classes that extend public ones, or private ones."""
    public = [resolve(name) for name in list_names()]
    bases = {
        name: [base for base in thing.__bases__ if base.__module__.partition(".")[0] in OURS]
        for name in list_names()
        if isinstance(thing := resolve(name), type)
    }
    private = {name for name, ours in bases.items() if any(base not in public for base in ours)}
    config.autosummary_context |= {
        "extends_public": [name for name, ours in bases.items() if ours and name not in private],
        "extends_private": sorted(private),
    }


def write_pages(app: Sphinx, config: Config) -> None:
    """Write the pages of the groups."""
    homes = find_home_pages()
    pages = {f"{key}.rst": format_group(group, homes) for key, group in GROUPS.items()}
    by_autosummary = {f"{name}.rst" for name in homes.values() if name not in DATA}
    refresh(Path(app.srcdir) / "api", pages, by_autosummary)


def format_group(group: Group, homes: dict[str, str]) -> str:
    """Return the page of a group."""
    sections = [format_section(section, homes) for section in group.sections if section.names]
    return f"{underline(group.title, '=')}\n{group.summary}\n\n" + "\n".join(sections)


def format_section(section: Section, homes: dict[str, str]) -> str:
    """Return a table of names with a page of their own, then of names described elsewhere."""
    own = [name for name in section.names if homes[name] == name and name not in DATA]
    others = [homes[name] for name in section.names if homes[name] != name]
    text = underline(section.title, "-")
    if own:
        text += "\n" + format_autosummary(own, "   :toctree: .\n")
    text += "".join(
        format_data(name) for name in section.names if name in DATA and homes[name] == name
    )
    if others:
        text += f"\nAlso there, and described elsewhere:\n\n{format_autosummary(others, '')}"
    return text


def format_data(name: str) -> str:
    """Return the description of a plain object."""
    kind, text = DATA[name]
    return f"\n.. py:data:: {name}\n   :type: {kind}\n\n   {text}\n"


def format_autosummary(names: list[str], option: str) -> str:
    """Return an autosummary directive."""
    rows = "".join(f"   ~{name}\n" for name in names)
    return f".. autosummary::\n{option}   :nosignatures:\n\n{rows}"


def link_groups(app: Sphinx, docname: str, source: list[str]) -> None:
    """Link the groups in the table of api/index.md to their pages, which GitHub does not have."""
    if docname == "api/index":
        for key, group in GROUPS.items():
            link = f"| [{group.title}]({key}.rst) |"
            source[0] = source[0].replace(f"| {group.title} |", link)


def link_public_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: Element
) -> Element | None:
    """Link `Variant`, or `fedsuplin.plugin.Variant`, to the one page that the name has."""
    if node.get("refdomain") != "py":
        return None
    homes = find_home_pages()
    short = {name.rpartition(".")[2]: home for name, home in reversed(homes.items())}
    home = (homes | short).get(node["reftarget"])
    if home is None:
        return None
    return env.domains.python_domain.resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], home, node, contnode
    )


def make_signature_readable(
    app: Sphinx,
    what: str,
    name: str,
    obj: Any,
    options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Replace the default `<factory>` of a dataclass by Python that Sphinx can parse."""
    return signature and signature.replace("<factory>", "..."), returns


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("config-inited", describe_bases)
    app.connect("source-read", link_groups)
    app.connect("missing-reference", link_public_name)
    app.connect("autodoc-process-signature", make_signature_readable)
    app.connect("config-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
