"""Additions to the build of mkdocs.yml: pages and programs outside of docs/, and the links to them.

CONTRIBUTING.md, CHANGELOG.md and examples/ are in the site as if they lay in docs/. A link that leads out of docs/, or
into it, becomes one within the site, so that the same text is right in the repository and in the site.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```\s*$", re.MULTILINE | re.DOTALL)
TEXT = r"^(?P<text>(?!\s*(?:[-*|>#]|\d+\.|<!--)|\s{2,}|\s*$).*\n)"
LONG_CODE = re.compile(r"(?<!<span></span>)<code>([^<\n]{30,})</code>")
PLAIN_CELL = re.compile(r"(?<=<td>)[^<]+(?=</td>)")
LONG_WORD = re.compile(r"[\w.+]{16,}")
BREAK = re.compile(r"(?<=[/._])(?=\w)|(?<=::)")
WALKS = re.compile(r"architecture\.md|internals/(?!index)")
LIST_AFTER_TEXT = re.compile(TEXT + r"(?=- |1\. |\|)", re.MULTILINE)


def outside() -> dict[str, Path]:
    """Return the files that the site has besides those of docs/, by their place in the site."""
    found = {name: ROOT / name for name in PAGES}
    for path in sorted((ROOT / "examples").rglob("*")):
        hidden = any(part.startswith((".", "__pycache__")) for part in path.relative_to(ROOT).parts)
        if path.is_file() and not hidden:
            found[path.relative_to(ROOT).as_posix()] = path
    return found


def within_site(target: str, page: str) -> str:
    """`target`, a link in the repository's file of the site's page `page`, as a link within the site."""
    in_docs = page not in PAGES and not page.startswith("examples/")
    path, anchor, fragment = target.partition("#")
    home = (ROOT / "docs" / page if in_docs else ROOT / page).parent
    there = Path(*(home / path).parts).resolve() if path else None
    if there is None:
        return target
    for top in (ROOT / "docs", ROOT):
        if there.is_relative_to(top.resolve()):
            place = there.relative_to(top.resolve())
            return "../" * page.count("/") + place.as_posix() + anchor + fragment
    return target


def with_blank_lines(text: str) -> str:
    """Return the text with an empty line before lists and tables, as Python's Markdown requires."""
    parts, at = [], 0
    for fence in FENCED.finditer(text):
        parts += [LIST_AFTER_TEXT.sub(r"\g<text>\n", text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, LIST_AFTER_TEXT.sub(r"\g<text>\n", text[at:])])


def breakable(name: str) -> str:
    """Return a long name that may be broken after its dots, slashes and underscores."""
    return BREAK.sub("<wbr>", name)


def on_files(files: Files, *, config: Any) -> Files:
    """Return the files of the site, those from outside of docs/ among them."""
    for place, path in outside().items():
        files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Return a page's text with links and lists adapted to the site."""
    if WALKS.match(page.file.src_uri):
        page.meta.setdefault("hide", ["toc"])  # walks are 116 columns wide
    linked = LINK.sub(lambda match: f"]({within_site(match[1], page.file.src_uri)})", markdown)
    return with_blank_lines(linked)


def on_page_content(html: str, *, page: Any, config: Any, files: Files) -> str:
    """Return the page with breaks allowed inside of long names, so that they do not squeeze a table's other columns."""
    with_code = LONG_CODE.sub(lambda match: f"<code>{breakable(match[1])}</code>", html)
    return PLAIN_CELL.sub(lambda cell: LONG_WORD.sub(lambda word: breakable(word[0]), cell[0]), with_code)
