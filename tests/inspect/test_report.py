"""The report page: what it shows, escaped and whole; how it looks in a real browser, light, dark, narrow and wide."""

import re
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import StorageError
from kafkalog.inspect.report import Report, page
from kafkalog.inspect.series import average_runs, axis_end, rates
from kafkalog.inspect.tally import Span
from kafkalog.tools.report import make_report, write_report
from kafkalog.types import TopicPartition
from tests.golden_cases import extracted
from tests.pages import shape_of
from tests.raw_batches import batches, write_segment
from tests.server.browser import CONTRASTS, Browser, browser

__all__ = ["browser"]

EVIL = '<script>alert("x")</script>&\'"\u202e\x1b[31m'
TIME = 1_795_176_000_000


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topics of a data directory: skewed keys, some hostile; compacted, empty, damaged, with a long name."""
    data = tmp_path_factory.mktemp("report") / "data"
    keys = [EVIL.encode(), b"\xff\x00", None, b"k" * 300, "日本".encode(), *(b"u-%d" % n for n in range(40))]
    with kafkalog.open(data / "orders-0", "a", segment_bytes=1 << 20) as log:
        for n in range(60):
            chosen = [keys[i // 2 % 6 if i % 2 else i * i % len(keys)] for i in range(200)]
            rows = [(key, b"v" * (i % 90), TIME + 60_000 * n + i) for i, key in enumerate(chosen)]
            log.append(rows, compression=("zstd", "lz4", None)[n % 3])
            if n % 9 == 8:
                log.roll()
    (data / "cleaner-offset-checkpoint").write_text("0\n1\nusers 0 100\n")
    with kafkalog.open(data / "users-0", "a", cleanup_policy="compact") as log:
        for _ in range(4):
            log.append([(b"k%d" % (i % 9), b"value", TIME + i) for i in range(100)])
            log.roll()
    for name in ("empty-0", "a-topic-with-" + "a-long-name-" * 19 + "-0"):
        kafkalog.open(data / name, "a").close()
    parts = batches(0, 30, 10, timestamp=TIME)
    parts[10] = b"\0" * len(parts[10])
    write_segment(data / "broken-0", 0, parts)
    write_segment(data / "broken-0", 300, batches(300, 5, 10, timestamp=TIME))
    return data


def test_it_is_whole_and_fetches_nothing(directory: Path) -> None:
    html = page(make_report([str(directory)]))
    shape = shape_of(html)
    assert shape.open == []
    assert not shape.tags & {"script", "link", "img", "iframe", "object", "form", "a", "image", "use", "foreignobject"}
    assert not {name for name in shape.attributes if name.startswith("on") or name in ("src", "href", "xlink:href")}
    assert "url(" not in html and "://" not in html and "@import" not in html
    assert "default-src 'none'" in html


def test_what_it_shows(directory: Path) -> None:
    report = make_report([str(directory)])
    text = shape_of(page(report)).text
    for shown in ("5\ntopics", "5\npartitions", "Records a second", "Bytes a second", "Size by segment",
                  "Batches by size", "Compression ratio", "Most frequent keys", "Key skew", "Dirty ratio",
                  "Index density", "Size by topic", "zstd", "lz4", "u-1", "日本", "empty", "users-0",
                  "\n\\xff\\x00\n", '<script>alert("x")</s...'):  # fmt: skip
        assert shown in text, shown
    assert "\u202e" not in text and "\x1b" not in text
    assert "invalid size field 0" in text and "offsets 100 to 109" in text
    assert report.logs[-1].dirty is not None and f"{report.logs[-1].dirty.ratio:.1%}" in text
    assert "Sampled" not in text and "~" not in text


def test_a_large_directory_is_sampled_and_says_so(tmp_path: Path) -> None:
    for name, count in (("large-0", 40), ("small-0", 1)):
        for base in range(0, 1000 * count, 1000):
            parts = batches(base, 100, 10, size=300, timestamp=TIME)
            write_segment(tmp_path / "data" / name, base, parts, interval=512)
    report = make_report([str(tmp_path / "data")], sample_bytes=2 << 20)
    large, small = report.logs
    assert not large.sample.is_whole and large.sample.share < 0.5 and small.sample.is_whole
    text = shape_of(page(report)).text
    assert "Sampled: " in text and "equal distances in 1 partition." in text and "~41,000\nrecords" in text
    whole = make_report([str(tmp_path / "data")], sample_bytes=None)
    assert all(one.sample.is_whole for one in whole.logs) and "~" not in shape_of(page(whole)).text


def test_many_topics_have_a_row_each_and_the_largest_pictures(tmp_path: Path, directory: Path) -> None:
    (first, *_) = make_report([str(directory)], topics=["users"]).logs
    logs = [first.__class__(**{**vars(first), "topic_partition": TopicPartition(f"t{n}", 0)}) for n in range(60)]
    text = shape_of(page(Report(("/data",), tuple(logs), (), TIME))).text
    assert text.count("Batches by size") == 40 and "20 smaller topics without pictures" in text
    assert all(f"\nt{n}-0\n" in text for n in range(60))


def test_nothing_at_all() -> None:
    text = shape_of(page(Report((EVIL,), (), (EVIL,), TIME))).text
    assert "There is no partition here" in text and text.count("<script>alert") == 3  # title, heading, problem


def test_a_whole_broker_directory() -> None:
    """The real broker's: 40 partitions, internal topics, compacted and transactional ones, an outlier in time."""
    report = make_report([str(extracted("logdir.tar.gz") / "data")])
    shape = shape_of(page(report))
    assert shape.open == [] and report.problems == ()
    assert len(report.logs) > 30 and "of the records are outside" in shape.text


def test_rates_are_what_was_written() -> None:
    spans = [Span(0, 1000, 100, 1000), Span(1000, 2000, 0, 0), Span(2000, 4000, 400, 8000)]
    found = rates(spans, steps=4)
    assert found is not None and (found.start_ms, found.end_ms, found.outside) == (0, 4000, 0.0)
    assert found.records == pytest.approx((100, 0, 200, 200)) and found.bytes == pytest.approx((1000, 0, 4000, 4000))
    assert rates([]) is None
    far = rates([*spans, Span(10**12, 10**12 + 1, 0.1, 1)], steps=4)
    assert far is not None and far.end_ms <= 4000 and 0 < far.outside < 0.001
    assert [axis_end(value) for value in (1, 1.2, 2.5, 4.1, 9, 11, 4999)] == [1, 2, 4, 5, 10, 20, 5000]
    assert average_runs(list(range(10)), 3) == [(0, 2, 1.0), (3, 5, 4.0), (6, 9, 7.5)]


# In a browser


@pytest.fixture(scope="module")
def written(directory: Path) -> Path:
    path = directory.parent / "report.html"
    path.write_text(page(make_report([str(directory)])), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_in_a_browser(browser: Browser, written: Path, scheme: str, width: int) -> None:
    browser.go(written.as_uri(), width=width, scheme=scheme)
    assert browser.value("document.title").startswith("kafkalog: /")
    assert browser.value("document.scripts.length") == 0
    # nothing is wider than the window, and all of it is read easily (WCAG 2.2, 1.4.3 and 1.4.10)
    assert browser.value("document.documentElement.scrollWidth") <= width
    browser.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert browser.value("document.documentElement.scrollWidth") <= width
    contrasts = browser.value(CONTRASTS % "h1,h2,td,th,summary,span,p,b,.dim,.card,footer")
    assert len(contrasts) > 100
    assert [one for one in contrasts if one[0] < 4.5] == []
    assert browser.value(PICTURES) == []
    dark = max(map(int, re.findall(r"\d+", browser.value("getComputedStyle(document.body).backgroundColor")))) < 100
    assert dark == (scheme == "dark")
    assert browser.requested == [written.as_uri()] and browser.complaints == []


PICTURES = """[...document.querySelectorAll('figure')].filter(one => {
  const marks = [...one.querySelectorAll('path.line,rect,.bars i')].map(mark => mark.getBoundingClientRect());
  const frame = one.getBoundingClientRect();
  return frame.width < 200 || !marks.length || !marks.some(mark => mark.width > 1 && mark.height > 1)
    || marks.some(mark => mark.right > frame.right + 1 || mark.left < frame.left - 1);
}).map(one => one.querySelector('figcaption').textContent)"""
"""Pictures in which nothing is drawn, or that leave their frame."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_notebook_tables_in_a_browser(browser: Browser, directory: Path, tmp_path: Path, scheme: str) -> None:
    """Tables have no colours of their own, so they fit a notebook's page, light or dark."""
    with kafkalog.open(directory / "orders-0") as log:
        html = log.segments._repr_html_() + log.stats(keys=True, sizes=True)._repr_html_()
    path = tmp_path / "notebook.html"
    colours = "background:#111;color:#eee" if scheme == "dark" else "background:#fff;color:#111"
    path.write_text(f'<!doctype html><meta charset="utf-8"><body style="{colours}">{html}</body>', encoding="utf-8")
    browser.go(path.as_uri(), width=1000, scheme=scheme)
    contrasts = browser.value(CONTRASTS % "td,th,caption,p")
    assert len(contrasts) > 100 and [one for one in contrasts if one[0] < 4.5] == []
    assert "\\u202e\\x1b[31m" in browser.value("document.body.innerText")
    assert browser.value("document.scripts.length") == 0 and browser.requested == [path.as_uri()]


def test_a_page_that_cannot_be_put_into_its_place_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(StorageError):
        write_report("<!doctype html>", str(tmp_path / "report.html"))
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
