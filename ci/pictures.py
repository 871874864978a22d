"""Rebuilds the pictures of docs/: python -m ci.pictures [report] [browse] [status], in the repository's directory.

The terminal browser is drawn by Textual, the status page is that of a real server with clients at work; the
distribution's Chromium takes the pictures, and pngquant, where it is there, makes them small. Look at them afterwards.
"""

import asyncio
import base64
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import kafkalog
from kafkalog.browse.app import BrowseApp
from kafkalog.browse.start import BrowseOptions, make_app
from kafkalog.tools.consume.decoded import parse_serdes
from kafkalog.tools.directories import partitions_below
from tests.server.browser import Browser

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
SHOP = Path("/tmp/shop")
"""Where the data lies, since pictures show paths."""
BEGAN_MS = 1_795_176_000_000
DAY_MS = 86_400_000
FRUIT = ("apples", "pears", "quinces", "medlars")
COUNTS = (("customers", 1, "none", 120), ("orders", 3, "zstd", 600), ("payments", 2, "lz4", 200))
"""Topics: partitions, codec, batches in each partition."""
SCREENS = {
    "browse-partitions": ((100, 15), ("down", "down")),
    "browse-batches": ((100, 18), ("down", "down", "enter", "down", "enter", "pagedown", "down", "down", "down")),
    "browse-records": ((100, 18), ("down", "down", "enter", "down", "enter", "pagedown", "enter", "down", "down")),
    "browse-tree": ((100, 18), ("down", "down", "enter", "down", "enter", "pagedown", "enter", *"jj", "enter")),
    "browse-narrow": ((60, 14), ("down", "down", "enter", "down", "enter", "pagedown", "enter", "down")),
}
"""A picture's name, the terminal's columns and rows, and the keys that lead there."""
DECODED = {"browse-tree": "value=json"}
"""The decoder of a picture's records."""


def fill(data: Path) -> None:
    """Write orders, payments and customers, with three codecs."""
    chance = random.Random(7)
    with kafkalog.open_dirs(str(data), "a", log_segment_bytes=1 << 20, log_retention_ms=-1) as dirs:
        for topic, parts, codec, count in COUNTS:
            dirs.create_topic(topic, parts, {"compression.type": codec} if codec != "none" else {})
            for part in range(parts):
                made, at = BEGAN_MS, 0
                for _ in range(count):
                    rows = []
                    for _ in range(chance.randint(1, 200)):
                        by_day = 1.15 + math.cos(made / DAY_MS * 2 * math.pi)
                        made += int(chance.expovariate(1) * 4500 * by_day)
                        key = b"customer-%d" % min(int(chance.expovariate(0.05)), 99)
                        value = b'{"order": %d, "fruit": "%s", "cents": %d, "paid": %s}' % (
                            at * parts + part, chance.choice(FRUIT).encode(), chance.randint(90, 9900),
                            chance.choice((b"true", b"false")),
                        )  # fmt: skip
                        rows.append((key, value, made, [("trace", b"%08x" % chance.getrandbits(32))][: at % 3 == 0]))
                        at += 1
                    dirs[topic, part].append(rows)


async def screens(data: Path) -> dict[str, str]:
    """Return each screen as SVG."""
    made = {}
    for name, (size, keys) in SCREENS.items():
        serdes = [DECODED[name]] if name in DECODED else []
        options = BrowseOptions(parse_serdes(serdes))
        app: BrowseApp = make_app(partitions_below([str(data)]), options=options)
        async with app.run_test(size=size) as pilot:
            for key in (None, *keys):
                if key is not None:
                    await pilot.press(key)
                for _ in range(3):
                    await pilot.pause()
                    await app.workers.wait_for_complete()
                await pilot.pause()
            title = " ".join(["kafkalog browse data", *(f"-s {one}" for one in serdes)])
            made[name] = app.export_screenshot(title=title)
    return made


def shoot(browser: Browser, name: str, width: int, height: int) -> None:
    """Save what the browser shows as a picture in docs/images."""
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    found = browser.ask("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
    path = IMAGES / f"{name}.png"
    path.write_bytes(base64.b64decode(found["data"]))
    if shutil.which("pngquant"):
        small = ["pngquant", "--force", "--skip-if-larger", "--strip", "--output", path, "64", path]
        subprocess.run(small, check=False)
    print(f"{path}: {width} x {height}, {path.stat().st_size:,} bytes")


def report(browser: Browser, scratch: Path) -> None:
    """The report, and the tables of a notebook."""
    fill(scratch / "data")
    page = scratch / "report.html"
    command = [sys.executable, "-m", "kafkalog", "report", str(scratch / "data"), "-o", str(page)]
    subprocess.run(command, check=True)
    for name, width, scheme in (("light", 1280, "light"), ("dark", 1280, "dark"), ("phone", 390, "dark")):
        browser.go(page.as_uri(), width=width, scheme=scheme)
        shoot(browser, f"inspection-report-{name}", width, 1560)
    with kafkalog.open(str(scratch / "data" / "orders-0")) as log:
        figures, *_, batches, _ = log.stats(keys=True).tables()
        tables = "".join(one._repr_html_() for one in (log.segments, figures, batches))
    style = ":root{color-scheme:light dark}body{margin:0;padding:8px 16px;width:fit-content;font:13px sans-serif}"
    head = f'<!doctype html><meta charset="utf-8"><style>{style}</style>'
    page.write_text(f"{head}<body>{tables}</body>", encoding="utf-8")
    for scheme in ("light", "dark"):
        browser.go(page.as_uri(), width=1000, scheme=scheme)
        box = browser.value("(b => [b.width, b.height])(document.body.getBoundingClientRect())")
        shoot(browser, f"inspection-notebook-{scheme}", *(math.ceil(one) for one in box))


def browse(browser: Browser, scratch: Path) -> None:
    """The terminal browser."""
    os.chdir(scratch)
    fill(Path("data"))
    for name, svg in asyncio.run(screens(Path("data"))).items():
        page = scratch / f"{name}.html"
        text = svg.replace("Fira Code", "DejaVu Sans Mono")
        page.write_text(f"<body style='margin:0;width:fit-content'>{text}</body>", encoding="utf-8")
        width = 12.2 * SCREENS[name][0][0] + 20
        browser.go(page.as_uri(), width=int(width), height=600)
        browser.value(f"document.querySelector('svg').style.cssText = 'display:block;width:{width * 0.78:.0f}px'")
        box = browser.value("(b => [b.width, b.height])(document.querySelector('svg').getBoundingClientRect())")
        shoot(browser, name, *(round(one) for one in box))


def status(browser: Browser, scratch: Path) -> None:
    """Take pictures of the status page, while two groups read."""
    from confluent_kafka import Consumer, Producer

    from kafkalog.testing import kafka_server

    settings = {"kafkalog.http.listener": "127.0.0.1:0", "listeners": "PLAINTEXT://127.0.0.1:29092"}
    topics = {"customers": 1, "orders": 3, "payments": 2}
    with kafka_server(topics=topics, settings=settings, directory=str(scratch / "data")) as server:
        producer = Producer({"bootstrap.servers": server.bootstrap, "compression.type": "zstd", "linger.ms": 5})
        chance = random.Random(7)

        def write(count: int) -> None:
            for number in range(count):
                topic = chance.choice(("customers", "orders", "orders", "orders", "payments"))
                value = b'{"order": %d, "cents": %d, "trace": "%032x"}' % (number, number * 7, chance.getrandbits(128))
                producer.produce(topic, value, key=b"customer-%d" % chance.randint(0, 99), on_delivery=_delivered)
                producer.poll(0)
            assert producer.flush(60) == 0

        def read(group: str, topics: list[str], least: int) -> Consumer:
            options = {"bootstrap.servers": server.bootstrap, "group.id": group, "enable.auto.commit": False}
            consumer = Consumer({**options, "auto.offset.reset": "earliest"})
            consumer.subscribe(topics)
            seen = 0
            while seen < least:
                seen += len(consumer.consume(5000, 1.0))
            consumer.commit(asynchronous=False)
            return consumer

        write(150_000)
        consumers = [read("billing", ["orders"], 85_000), read("search-index", ["customers"], 25_000)]
        read("nightly-report", ["payments"], 20_000).close()
        write(12_000)
        time.sleep(1)
        url = f"http://127.0.0.1:{server.http_port}/"
        for name, width, scheme in (("light", 1120, "light"), ("dark", 1120, "dark"), ("phone", 390, "dark")):
            browser.go(url, width=width, scheme=scheme)
            height = browser.value("document.documentElement.scrollHeight")
            shoot(browser, f"server-status-{name}", width, min(height, 1400))
        for consumer in consumers:
            consumer.close()


def _delivered(error: object, _: object) -> None:
    assert error is None, error


PICTURES: dict[str, Callable[[Browser, Path], None]] = {"report": report, "browse": browse, "status": status}


def main(names: list[str]) -> None:
    """Make the named pictures, or all."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as kept, Browser(Path(kept, "profile")) as browser:
        for name in names or PICTURES:
            shutil.rmtree(SHOP, ignore_errors=True)
            SHOP.mkdir()
            try:
                PICTURES[name](browser, SHOP)
            finally:
                shutil.rmtree(SHOP)


if __name__ == "__main__":
    main(sys.argv[1:])
