"""The documentation site: `python -m sphinx -W --keep-going -b html docs docs/_build/html`.

Nothing is fetched from another host, neither when the site is built nor when it is read: no fonts,
no scripts, no inventories of other projects.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "tools")]  # the list of names, and our extensions

from api_reference import find_home_pages  # noqa: E402
from numpydoc.xref import DEFAULT_LINKS  # noqa: E402

from fedsuplin import __version__  # noqa: E402

project = "fedsuplin"
author = "fedsuplin maintainers"
version = release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
    "api_pages",
    "github_markdown",
]
exclude_patterns = ["_build", "tools", "templates", "static"]
templates_path = ["templates"]

# --- Markdown -------------------------------------------------------------------------------------

myst_heading_anchors = 4  # with the anchors that GitHub gives headings
myst_links_external_new_tab = False

# --- docstrings -----------------------------------------------------------------------------------

default_role = "py:obj"  # a name in single backticks becomes a link if the name is public
nitpicky = True  # :class:`X`, :func:`x` and :meth:`x` must exist ...
nitpick_ignore_regex = [  # ... unless they are Python's or another package's
    (r"py:obj", r"(?s).*"),
    (r"py:(class|exc)", r"object|tuple|UserWarning|\w*(Error|Exception)"),
    (r"py:.*", r"(numpy|scipy|pandas|matplotlib|pluggy|collections|pathlib|types|typing)\..*"),
]
add_module_names = False
python_maximum_signature_line_length = 88
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the tables of parameters have them
autodoc_preserve_defaults = True
numpydoc_show_class_members = False  # the class template lists the members
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = True  # our types in the tables of parameters are links
numpydoc_xref_aliases = {name: name for name in DEFAULT_LINKS}  # no links to other projects
classes = [name for name in find_home_pages().values() if name.rpartition(".")[2][0].isupper()]
numpydoc_xref_aliases |= {name.rpartition(".")[2]: name for name in classes}
numpydoc_xref_ignore = "all"  # all others are plain text

# --- HTML -----------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "fedsuplin"
html_favicon = "pictures/favicon.svg"
html_logo = "pictures/favicon.svg"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_sidebars = {"index": [], "algorithm": [], "search": []}
html_theme_options = {
    "logo": {"text": "fedsuplin"},
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": [],
}
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"  # code, not its output
