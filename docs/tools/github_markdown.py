"""A Sphinx extension that gives Markdown for GitHub the same meaning on the site.

- `<picture>` with a dark and a light file: the site's switch chooses, not the system's setting.
- A link to a file or a folder outside of docs/: a generated page, docs/files/PATH.rst, shows it.
- A link `api/index.md#fedsuplin.Client`: the page of that name.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from generated import refresh, underline
from sphinx.application import Sphinx
from sphinx.config import Config

LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)\)")
NAME = re.compile(r"\[`(\w+)`\]\((?:[\w./]*/)?api/index\.md#([\w.]+)\)")
PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)">\s*'
    r'<img alt="(?P<alt>[^"]*)" src="(?P<light>[^"]+)">\s*</picture>'
)
LANGUAGES = {
    ".py": "python",
    ".pyx": "cython",
    ".pxd": "cython",
    ".toml": "toml",
    ".md": "markdown",
}


def write_file_pages(app: Sphinx, config: Config) -> None:
    """Write one page per file or folder outside of docs/ that a page links to."""
    docs = Path(app.srcdir)
    wanted = {
        path
        for file in docs.rglob("*.md")
        for link in LINK.findall(file.read_text(encoding="utf-8"))
        if (path := find_outside_path(file.relative_to(docs).with_suffix("").as_posix(), link))
    }
    refresh(docs / "files", {f"{path}.rst": format_file_page(docs.parent, path) for path in wanted})


def find_outside_path(page: str, link: str) -> str | None:
    """Return the path in the repository that a link leads to, if it is text outside of docs/."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return None if path.startswith("docs/") or path.endswith(".ipynb") else path


def format_file_page(root: Path, path: str) -> str:
    """Return a page that shows a file, or each file of a folder under a heading."""
    place = root / path
    text = f":orphan:\n\n{underline(path, '=')}\n"
    if not place.is_dir():
        return text + format_inclusion(path)
    texts = sorted(file for file in place.rglob("*") if file.suffix in LANGUAGES)
    files = [file.relative_to(root).as_posix() for file in texts if "build" not in file.parts]
    parts = (
        f"{underline(posixpath.relpath(file, path), '-')}\n{format_inclusion(file)}"
        for file in files
    )
    return text + "\n".join(parts)


def format_inclusion(path: str) -> str:
    """Return a directive that shows a file."""
    language = LANGUAGES.get(posixpath.splitext(path)[1], "text")
    return f".. literalinclude:: /../{path}\n   :language: {language}\n"


def translate(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace Markdown for GitHub by Markdown for MyST."""
    if app.env.doc2path(docname).suffix != ".md":
        return
    here = posixpath.dirname(docname) or "."

    def link_to_page(link: re.Match[str]) -> str:
        path = find_outside_path(docname, link[1])
        return link[0] if path is None else f"]({posixpath.relpath(f'files/{path}.rst', here)})"

    text = NAME.sub(r"{py:obj}`\1 <\2>`", source[0])
    source[0] = PICTURE.sub(make_two_images, LINK.sub(link_to_page, text))


def make_two_images(picture: re.Match[str]) -> str:
    """Return two image directives, one per mode, with the classes of the theme."""
    light, dark = (
        f"```{{image}} {picture[mode]}\n:alt: {picture['alt']}\n:class: only-{mode}\n```"
        for mode in ("light", "dark")  # the theme shows one of them
    )
    return f"{light}\n\n{dark}"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("config-inited", write_file_pages)
    app.connect("source-read", translate)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
