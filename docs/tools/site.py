"""What mkdocs is told beside mkdocs.yml: links that leave docs/ lead to a page that shows the file, or the folder's files."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)\)")
LANGUAGES = {
    ".py": "python",
    ".pyx": "cython",
    ".pxd": "cython",
    ".toml": "toml",
    ".md": "markdown",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """A page for everything outside of docs/ that a page links to."""
    wanted = {
        outside
        for file in files.documentation_pages()
        for link in LINK.findall(file.content_string)
        if (outside := outside_of_docs(file.src_uri, link)) is not None
    }
    for path in sorted(wanted):
        files.append(File.generated(config, page_of(path), content=shown(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The links to those pages."""
    here = posixpath.dirname(page.file.src_uri)

    def instead(link: re.Match[str]) -> str:
        path = outside_of_docs(page.file.src_uri, link[1])
        return link[0] if path is None else f"]({posixpath.relpath(page_of(path), here or '.')})"

    return LINK.sub(instead, markdown)


def outside_of_docs(page: str, link: str) -> str | None:
    """The path in the repository that a link of a page means, if that is not in docs/."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return None if path.startswith("docs/") else path


def page_of(path: str) -> str:
    return f"source/{path}.md"


def shown(path: str) -> str:
    place = ROOT / path
    files = sorted(
        file for file in place.rglob("*") if file.suffix in LANGUAGES and "build" not in file.parts
    )
    parts = [f"# {path}\n"] + [f"## {file.relative_to(place)}\n\n{fenced(file)}" for file in files]
    return "\n".join(parts if place.is_dir() else [parts[0], fenced(place)])


def fenced(file: Path) -> str:
    return f"````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text(encoding='utf-8')}````\n"
