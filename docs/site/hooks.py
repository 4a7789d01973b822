"""Hooks of MkDocs: serve the pages of the repository at their own paths, with the navigation of docs/README.md.

Each page keeps the path that it has in the repository, so that links between pages work unchanged on the site.
Other files that pages link to, such as sources and pictures, are copied as they are.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[2]
INDEX: Final = ROOT / "docs/README.md"
LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s#]+)[^)\s]*\)")
ROW: Final = re.compile(r"^## (.+)$|^\| \[([^\]]+)\]\(([^)]+)\)", re.MULTILINE)
DIAGRAMS: Final = "docs/site/vendor/mermaid.tiny.js"
LATER: Final = "<script>mermaid.startOnLoad = false</script>"  # Material starts it, with the colours of its theme


def on_config(config: MkDocsConfig) -> None:
    """Set the navigation, and the anchors of headings that other renderers of Markdown use."""
    config.nav = navigation()
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of docs/ with the pages of the navigation and the files that they link to."""
    pages = [ROOT / path for path in paths(config.nav)]
    linked = {(page.parent / link).resolve() for page in pages for link in LINK.findall(page.read_text())}
    missing = [*(ROOT / "docs").rglob("*.md")]  # MkDocs reports those that the navigation does not name
    wanted = {*pages, *missing, *(one for one in linked if one.is_file() and one.suffix != ".md"), ROOT / DIAGRAMS}
    theme = [one for one in files if one.src_dir != config.docs_dir]
    return Files([*theme, *(file(one, config) for one in sorted(wanted))])


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Load the vendored diagram renderer where a page has a diagram; Material would load it from another host."""
    if 'class="mermaid"' not in output:
        return output
    up = "../" * page.url.count("/")
    return output.replace("</head>", f'<script src="{up}{DIAGRAMS}"></script>{LATER}</head>', 1)


def navigation() -> list[Any]:
    """The five parts of docs/README.md, each a list of titles and paths from the root."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for part, title, path in ROW.findall(INDEX.read_text()):
        if part:
            rows = parts.setdefault(part, [])
        else:
            rows.append({title: (INDEX.parent / path).resolve().relative_to(ROOT).as_posix()})
    decisions = sorted(one.relative_to(ROOT).as_posix() for one in (ROOT / "docs/decisions").glob("d*.md"))
    nav: list[Any] = [{part: rows} for part, rows in parts.items() if rows]
    nav[0]["Start"].insert(1, {"Documentation": "docs/README.md"})
    for row in nav[2]["Understand"]:
        if "Decisions" in row:
            row["Decisions"] = [row["Decisions"], *decisions]
    return nav


def paths(nav: Any) -> list[str]:
    """Every path of a navigation."""
    if isinstance(nav, str):
        return [nav]
    below = nav.values() if isinstance(nav, dict) else nav
    return [path for one in below for path in paths(one)]


def file(path: Path, config: MkDocsConfig) -> File:
    """A file of the repository, at its own path on the site."""
    return File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path))


def anchor(heading: str, separator: str) -> str:
    """The anchor that GitHub gives to a heading, which links between pages use."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", separator)
