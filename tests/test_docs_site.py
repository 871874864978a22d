"""The site of docs/ (mkdocs.yml) is built with no warning, needs no network to be read, and has all that is public."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import MemberDescriptorType
from urllib.parse import unquote, urlsplit

import pytest

import kafkalog
from tests.server.browser import Browser
from tests.trees import PACKAGE, SOURCES

OUTSIDE = {"CONTRIBUTING.html", "CHANGELOG.html", "examples/index.html", "examples/counter.py"}
FETCHED = {"script": "src", "link": "href", "img": "src", "source": "src", "iframe": "src"}


def build(tree: Path, site: Path) -> "subprocess.CompletedProcess[str]":
    """The finished build, as ci/docs.sh makes it."""
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "KAFKALOG_PACKAGE_IN": str(PACKAGE.parent)}
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=tree, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("docs") / "site"
    done = build(SOURCES, made)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr and "ERROR" not in done.stderr, done.stderr
    return made


class Page(HTMLParser):
    """Resources that a page loads, its links, and its link targets."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids.add(found.get("id") or "")
        target = found.get(FETCHED.get(tag, "")) if tag in FETCHED else None
        if target is not None and found.get("rel") != "canonical":
            self.fetched.append(target)
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))


def pages(site: Path) -> dict[str, Page]:
    return {str(path.relative_to(site)): Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def test_every_document_is_a_page(site: Path) -> None:
    documents = {one.relative_to(SOURCES / "docs").with_suffix(".html") for one in (SOURCES / "docs").rglob("*.md")}
    there = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}
    assert {str(one) for one in documents} | OUTSIDE <= there


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    for name, page in pages(site).items():
        assert page.fetched, name
        for target in page.fetched:
            assert not urlsplit(target).scheme and not urlsplit(target).netloc, f"{name}: {target}"
            assert (site / name).parent.joinpath(unquote(urlsplit(target).path)).exists(), f"{name}: {target}"


def test_links_and_anchors_lead_somewhere(site: Path) -> None:
    all_pages = pages(site)
    for name, page in all_pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            there = ((site / name).parent / unquote(parts.path)).resolve() if parts.path else (site / name).resolve()
            there = there / "index.html" if there.is_dir() else there
            assert there.exists(), f"{name}: {link}"
            other = all_pages.get(str(there.relative_to(site.resolve())))
            if parts.fragment and other is not None and not parts.fragment.startswith("__"):
                assert unquote(parts.fragment) in other.ids, f"{name}: {link}"


def test_lists_and_tables_that_follow_a_line_of_text_are_such(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = re.sub(r"<pre.*?</pre>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for paragraph in re.findall(r"<p>(.*?)</p>", text, re.DOTALL):
            assert not re.search(r"^(?:- |\d+\. |\|)", paragraph, re.MULTILINE), f"{path.name}: {paragraph[:200]}"
        assert not re.search(r"^\|", text, re.MULTILINE), f"{path.name}: rows of a table, as they were written"


def test_the_reference_has_every_public_name(site: Path) -> None:
    ids = set().union(*(Page(path).ids for path in (site / "reference").glob("*.html")))
    wanted = {f"kafkalog.{name}" for name in kafkalog.__all__ if not name.startswith("__")} - {"kafkalog.aio"}
    for kind in (kafkalog.Log, kafkalog.LogDirs):
        members = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
        documented = [name for name, one in members.items() if not isinstance(one, MemberDescriptorType)]
        wanted |= {f"kafkalog.{kind.__name__}.{name}" for name in documented}
    assert wanted - ids == set()


def test_examples_of_docstrings_are_code(site: Path) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (site / "reference").glob("*.html"))
    assert "<blockquote>" not in text and "```" not in text and text.count('class="gp">&gt;&gt;&gt; </span>') > 10


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if os.environ.get("KAFKALOG_NO_BROWSER") == "1":
        pytest.skip("KAFKALOG_NO_BROWSER=1")
    with Browser(tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser(browser: Browser, site: Path, scheme: str, width: int) -> None:
    for page in ("index", "start", "comparison", "architecture", "server", "inspection", "reference/log"):
        browser.go((site / f"{page}.html").as_uri(), width=width, scheme=scheme)
        assert browser.value("document.documentElement.scrollWidth") <= width, page
        assert browser.value("[...document.images].filter(one => !one.naturalWidth).map(one => one.src)") == [], page
        dark = max(map(int, re.findall(r"\d+", browser.value("getComputedStyle(document.body).backgroundColor")))) < 100
        assert dark == (scheme == "dark"), page
        assert all(one.startswith(("file:", "data:", "blob:")) for one in browser.requested), browser.requested
        assert browser.complaints == [], page


def write_small_site(tree: Path) -> None:
    """Write a tree with this site's settings, two pages of docs/ and what its hook brings in."""
    settings, _, _ = (SOURCES / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")
    shutil.copytree(SOURCES / "ci", tree / "ci", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(SOURCES / "docs" / "assets", tree / "docs" / "assets")
    (tree / "examples").mkdir()
    brought = ("CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")
    for name in ("docs/index.md", "docs/api.md", *brought):
        (tree / name).write_text("# A page\n\n[Reading](api.md#a-page)\n" if name == "docs/index.md" else "# A page\n")
    (tree / "mkdocs.yml").write_text(f"{settings}\nnav: [index.md, api.md, {', '.join(brought)}]\n")


def test_a_link_that_leads_nowhere_and_a_page_in_no_menu_fail_the_build(tmp_path: Path) -> None:
    write_small_site(tmp_path)
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    (tmp_path / "docs" / "lost.md").write_text("[away](nowhere.md) and [into nothing](api.md#no-such-heading)\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert all(word in done.stderr for word in ("lost.md", "nowhere.md", "no-such-heading")), done.stderr


@pytest.mark.parametrize(("page", "fewest"), [("docs/comparison.md", 55), ("README.md", 8)])
def test_every_figure_of_other_pages_stands_in_the_page_on_speed(page: str, fewest: int) -> None:
    speed = (SOURCES / "docs" / "performance.md").read_text(encoding="utf-8")
    parts = (SOURCES / page).read_text(encoding="utf-8").split("\n## ")
    cells = "\n".join(line for part in parts for line in part.splitlines() if line.startswith("|"))
    figures = re.findall(r"(?<![\d.,])\d+[.,]\d+\b(?!\.)", cells)
    assert len(figures) >= fewest
    assert [one for one in figures if one != "1,000" and not re.search(rf"(?<![\d.,]){re.escape(one)}", speed)] == []


def test_every_group_that_the_comparison_names_is_one_of_the_benchmarks() -> None:
    text = (SOURCES / "docs" / "comparison.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)`", text.partition("with the name of a group")[2].partition("Redpanda")[0])
    source = (SOURCES / "asv_benchmarks" / "__main__.py").read_text(encoding="utf-8")
    groups = re.findall(r'"(\w+)"', source.partition("GROUPS = (")[2].partition(")")[0])
    assert len(named) > 8 and set(named) <= set(groups)
