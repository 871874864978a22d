"""The status page: what it shows, escaped, and how it looks in a real browser, light and dark, wide and narrow."""

import re
from collections.abc import Iterator

import pytest

from kafkalog.cleaner.stats import NO_CLEANER, CleanerTotals, Uncleanable
from kafkalog.server.status import page as status_page
from kafkalog.server.status.http import HttpListener, Page
from kafkalog.server.status.page import page
from kafkalog.server.status.snapshot import DiskStatus, GroupStatus, LagStatus, PartitionStatus, Status, TopicStatus
from kafkalog.types import TopicPartition
from tests.pages import shape_of
from tests.server.browser import CONTRASTS, Browser, browser
from tests.server.http_pages import serve_pages

__all__ = ["browser"]

EVIL = '<script>alert("x")</script>&\'"'
STATUS = Status(
    "cluster<1>", 1, "0.1", (("PLAINTEXT", "127.0.0.1:9092"),), 1_000, 93_784_000,
    (
        TopicStatus("orders", "id-1", False, (
            PartitionStatus(0, 5, 1_000, 1_010, 2, 3, 4_096),
            PartitionStatus(1, -1, -1, -1, -1, 0, 0, "the directory /data/2 is offline " + EVIL),
        )),
        TopicStatus("__consumer_offsets", "id-2", True, (PartitionStatus(0, 0, 9, 9, 0, 1, 300),)),
        TopicStatus("a-topic-with-" + "a-long-name-" * 19, "id-3", False, (PartitionStatus(0, 0, 0, 0, 0, 1, 0),)),
    ),
    (
        GroupStatus(EVIL, "Stable", "consumer", 2, (LagStatus("orders", 0, 900, 100), LagStatus("old", 0, 1, None))),
        GroupStatus("idle", "Empty", "classic", 0, ()),
    ),
    NO_CLEANER._replace(
        threads=1, totals=CleanerTotals(cleans=7, bytes_read=10 << 20), last_look_ms=93_783_000,
        uncleanable=(Uncleanable(TopicPartition("orders", 0), "/data/1", EVIL),),
    ),
    (DiskStatus("/data/1", True, 100 << 30, 25 << 30), DiskStatus("/data/2", False, 0, 0)),
)  # fmt: skip


def test_it_is_whole_and_fetches_nothing() -> None:
    shape = shape_of(page(STATUS))
    assert shape.open == []
    assert not shape.tags & {"script", "link", "img", "iframe", "object", "form", "a"}
    assert "url(" not in page(STATUS)
    assert "http://" not in page(STATUS)


def test_what_it_shows() -> None:
    text = shape_of(page(STATUS)).text
    for shown in ("orders", "995 offsets", "1 offline", "lag 100", "gone", "up 1 d 2 h", "7 done", "75%",
                  "internal", "25.0 GiB", "0 members"):  # fmt: skip
        assert shown in text, shown
    assert text.count(EVIL) == 3


def test_a_server_with_nothing_in_it() -> None:
    text = shape_of(page(STATUS._replace(topics=(), groups=(), disks=(), listeners=()))).text
    assert text.count("none yet") == 2
    assert "no listeners" in text


def test_it_says_what_it_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_page, "MAX_ROWS", 2)
    text = shape_of(page(STATUS)).text
    assert text.count("1 more partitions are not shown") == 2


@pytest.mark.parametrize(
    ("groups", "size"), [(20_000, 8), (300, 30_000), (5, 1_000_000)], ids=["many", "long names", "huge names"]
)
def test_it_stays_small_whatever_groups_are_named(groups: int, size: int) -> None:
    """Clients name them; as text of four bytes a letter, and with what HTML escapes."""
    offsets = tuple(LagStatus("t" * 249, number, 1 << 60, 1 << 60) for number in range(20))
    named = tuple(
        GroupStatus(f"{number}" + "&\U0001f600" * (size // 2), "Stable", "consumer", 2, offsets)
        for number in range(groups)
    )
    topics = tuple(
        TopicStatus(f"{number}" + "t" * 245, "id", False, (PartitionStatus(0, 0, 1 << 60, 1 << 60, 9, 9, 9),))
        for number in range(3_000)
    )
    problems = tuple(Uncleanable(TopicPartition("orders", at), "/data/1", EVIL * 500) for at in range(1_000))
    status = STATUS._replace(groups=named, topics=topics, cleaner=NO_CLEANER._replace(uncleanable=problems))
    made = page(status)
    assert len(made.encode()) < 1_000_000
    assert shape_of(made).open == [] and "more topics are not shown" in made
    assert groups == 5 or "more groups are not shown" in made or "more offsets are not shown" in made


@pytest.fixture(scope="module")
def listener() -> Iterator[HttpListener]:
    async def status() -> Page:
        return Page(page(STATUS), "text/html; charset=utf-8")

    with serve_pages({"/": status}) as one:
        yield one


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser(browser: Browser, listener: HttpListener, scheme: str, width: int) -> None:
    url = f"http://127.0.0.1:{listener.port}/"
    browser.go(url, width=width, scheme=scheme)
    assert browser.value("document.title") == "kafkalog: node 1"
    assert browser.value("document.scripts.length") == 0
    assert EVIL in browser.value("document.body.innerText")
    # nothing is wider than the window, and all of it is read easily (WCAG 2.2, 1.4.3 and 1.4.10)
    assert browser.value("document.documentElement.scrollWidth") <= width
    browser.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert browser.value("document.documentElement.scrollWidth") <= width
    # how full a disk is can be seen, and read
    assert min(browser.value("[...document.querySelectorAll('meter')].map(one => one.offsetWidth)")) > 60
    assert "75%" in browser.value("document.body.innerText")
    contrasts = browser.value(CONTRASTS % "h1,h2,td span,summary span,p,b,.dim")
    assert len(contrasts) > 30
    assert [one for one in contrasts if one[0] < 4.5] == []
    dark = max(map(int, re.findall(r"\d+", browser.value("getComputedStyle(document.body).backgroundColor")))) < 100
    assert dark == (scheme == "dark")
    assert [one for one in browser.requested if not one.endswith("/favicon.ico")] == [url]
    assert [one for one in browser.complaints if "favicon" not in one] == []
