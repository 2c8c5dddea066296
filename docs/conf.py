"""How the site is built from these pages and the docstrings: `make docs`.

Everything a page needs is in the site itself: no font, script or picture is loaded from elsewhere.
Any warning (a link that leads nowhere, a name that cannot be imported, code that cannot be
parsed) is an error.
"""

import os
import re
from pathlib import Path

import windrow

project = "Windrow"
version = release = windrow.__version__
copyright = "The Windrow authors"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]

myst_heading_anchors = 4  # links such as semantics.md#windows, as GitHub makes them
highlight_language = "none"  # of blocks that name no language: diagrams and output

default_role = "code"  # docstrings mark code with single backticks
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

smartquotes = False

html_theme = "furo"
html_title = f"Windrow {version}"
html_copy_source = False

# Pages whose text is a file outside this folder.
ROOT = Path(__file__).parent.parent
ELSEWHERE = {
    "index": "README.md",
    "contributing": "CONTRIBUTING.md",
    "changelog": "CHANGELOG.md",
    "security": "SECURITY.md",
    "examples": "examples/README.md",
}


def put_in(app: object, page: str, source: list[str]) -> None:
    """Put the text of a file into the page that stands for it, with links that lead there."""
    if page in ELSEWHERE:
        file = ROOT / ELSEWHERE[page]
        text = re.sub(r"\]\((?!\w+:)([^)#]+)", lambda m: f"]({_link(file, m[1])}", file.read_text())
        source[0] = f"{text}\n{source[0]}"


def _link(file: Path, target: str) -> str:
    place = os.path.relpath(file.parent / target, ROOT)
    pages = {path: f"{page}.md" for page, path in ELSEWHERE.items()}
    return pages.get(place) or os.path.relpath(ROOT / place, Path(__file__).parent)


def setup(app: object) -> None:
    app.connect("source-read", put_in)  # type: ignore[attr-defined]
