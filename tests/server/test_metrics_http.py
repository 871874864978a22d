"""The HTTP port: what it answers, and that nothing sent to it does more than end that one connection."""

import asyncio
import gc
import random
import re
import socket
import struct
import time
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.server.groups.commits import Committer, NewOffset
from kafkalog.server.requests.cooperative_yield import TURN_ROWS
from kafkalog.server.status import http as metrics_http
from kafkalog.server.status.exposition import families
from kafkalog.server.status.http import HttpListener, Page, SharedPage
from kafkalog.server.status.metrics import BOUNDS_MS, ServerMetrics
from kafkalog.server.status.snapshot import status_of as gather_status
from kafkalog.server.wire.versions import APIS
from kafkalog.testing import ServerDidNotStart, kafka_server
from kafkalog.util.prometheus import lines
from tests.server.http_pages import read_all, send_request, serve_pages, status_of
from tests.server.nodes import node_for
from tests.trees import SOURCES


async def hello_page() -> Page:
    return Page("hello\n")


async def broken_page() -> Page:
    raise RuntimeError("on purpose")


@pytest.fixture
def listener() -> Iterator[HttpListener]:
    with serve_pages({"/": hello_page, "/broken": broken_page}) as one:
        yield one


def test_a_page(listener: HttpListener) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{listener.port}/?from=here") as answer:
        assert answer.read() == b"hello\n"
        assert answer.headers["Content-Length"] == "6"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_head_has_the_length_and_no_body(listener: HttpListener) -> None:
    answer = send_request(listener.port, b"HEAD / HTTP/1.1\r\n\r\n")
    assert b"Content-Length: 6\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\0\0\0\x0c\0\x12\0\x03\0\0\0\x01\xff\xff\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20000 + b"\r\n\r\n", 431),
        (b"GET /broken HTTP/1.1\r\n\r\n", 500),
    ],
)
def test_what_it_does_not_have_or_understand(listener: HttpListener, request_: bytes, status: int) -> None:
    assert status_of(send_request(listener.port, request_)) == status
    assert status_of(send_request(listener.port, b"GET / HTTP/1.1\r\n\r\n")) == 200


def test_a_page_is_made_once_for_all_who_ask_meanwhile_and_then_rests() -> None:
    """However often it is asked for, making it takes less than a tenth of the time."""

    async def run() -> None:
        clock, made = [100.0], []
        goes_on = asyncio.Event()

        async def make() -> Page:
            made.append(clock[0])
            await goes_on.wait()
            clock[0] += 2
            if len(made) == 3:
                raise RuntimeError("on purpose")
            return Page(f"{len(made)}\n")

        page = SharedPage(make, lambda: clock[0])
        asked = [asyncio.create_task(page.get()) for _ in range(50)]
        await asyncio.sleep(0)
        asked[0].cancel()  # a client that disconnects takes nothing from the others
        goes_on.set()
        assert [one.body for one in await asyncio.gather(*asked[1:])] == ["1\n"] * 49
        clock[0] += 10 * 2 - 0.5
        assert (await page.get()).body == "1\n" and made == [100]
        clock[0] += 0.5
        assert (await page.get()).body == "2\n" and made == [100, 122]
        clock[0] += 20
        with pytest.raises(RuntimeError, match="on purpose"):
            await page.get()
        assert (await page.get()).body == "4\n"  # an error is shown only once
        goes_on.clear()
        clock[0] += 20
        last = asyncio.create_task(page.get())
        await asyncio.sleep(0)
        page.stop()
        with pytest.raises(asyncio.CancelledError):
            await last

    asyncio.run(run())


def test_clients_are_served_while_the_status_of_many_partitions_and_groups_is_gathered(tmp_path: Path) -> None:
    async def run() -> None:
        async with node_for(tmp_path) as node:
            topic = await node.topics.create("t", 1)
            node.topics._put(topic._replace(partitions=5000))
            offsets = {("t", index): NewOffset(1, -1, "") for index in range(5000)}
            await node.groups.commits.commit("g", Committer(), offsets)
            gathered = asyncio.create_task(gather_status(node))
            turns = 0
            while not gathered.done():
                await asyncio.sleep(0)
                turns += 1
            status = gathered.result()
            assert turns > 10_000 // TURN_ROWS
            assert len(status.topics[-1].partitions) == len(status.groups[0].offsets) == 5000

    asyncio.run(run())


def test_what_went_wrong_inside_stays_inside(listener: HttpListener) -> None:
    assert b"on purpose" not in send_request(listener.port, b"GET /broken HTTP/1.1\r\n\r\n")


def test_random_bytes_and_clients_that_go_away(listener: HttpListener) -> None:
    noise = random.Random(3)
    for number in range(200):
        with socket.create_connection(("127.0.0.1", listener.port)) as link:
            link.sendall(noise.randbytes(noise.randrange(64)))
            if number % 2:  # a reset instead of an end
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for _ in range(500):  # as long as so many are not yet seen to be gone, one more is refused
        try:
            if status_of(send_request(listener.port, b"GET / HTTP/1.1\r\n\r\n")) == 200:
                return
        except ConnectionError:
            pass
        time.sleep(0.02)
    pytest.fail("the listener does not come back")


def test_a_request_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_http, "HEAD_S", 0.2)
    with serve_pages({"/": hello_page}) as listener:
        assert status_of(send_request(listener.port, b"GET / HT")) == 408


def test_connections_have_a_limit(listener: HttpListener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_http, "HEAD_S", 60)
    idle = [
        socket.create_connection(("127.0.0.1", listener.port), timeout=60)
        for _ in range(metrics_http.MAX_CONNECTIONS + 1)
    ]
    try:
        assert status_of(read_all(idle[-1])) == 503
        idle[0].sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert status_of(read_all(idle[0])) == 200
    finally:
        for link in idle:
            link.close()


def test_stop_ends_what_is_open() -> None:
    with serve_pages({"/": hello_page}) as listener:
        port = listener.port
        link = socket.create_connection(("127.0.0.1", port), timeout=60)
        link.sendall(b"GET ")
        assert status_of(send_request(listener.port, b"GET / HTTP/1.1\r\n\r\n")) == 200
    with link:
        assert read_all(link) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=60)


def get_page(port: int, path: str) -> tuple[int, str]:
    answer = send_request(port, f"GET {path} HTTP/1.1\r\n\r\n".encode())
    return status_of(answer), answer.partition(b"\r\n\r\n")[2].decode()


def test_the_pages_of_a_server() -> None:
    with kafka_server(settings={"kafkalog.http.listener": "127.0.0.1:0"}, topics={"orders": 2}) as server:
        assert server.http_port is not None
        assert get_page(server.http_port, "/health") == (200, "ok\n")
        assert get_page(server.http_port, "/ready") == (200, "ready\n")
        socket.create_connection(("127.0.0.1", server.port)).close()
        status, text = get_page(server.http_port, "/metrics")
        assert status == 200
        assert "kafkalog_server_connections_accepted_total 1\n" in text
        assert re.search(r'^kafkalog_log_end_offset\{topic="orders",partition="1",.*\} 0$', text, re.MULTILINE)
        # each line is a comment or a sample, each name has one type
        assert all(re.match(r"# (HELP|TYPE) |[a-z_]+(\{.*\})? \S+$", line) for line in text.splitlines())
        names = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
        assert len(names) == len(set(names)) > 40
        status, html = get_page(server.http_port, "/")
        assert status == 200
        assert f"127.0.0.1:{server.port}" in html
        assert "<b>orders</b>" in html


def test_a_wrong_address_is_told() -> None:
    with pytest.raises(ServerDidNotStart, match="nowhere"):
        with kafka_server(settings={"kafkalog.http.listener": "nowhere"}):
            raise AssertionError("it started")


def test_a_group_and_its_lag_are_on_the_page() -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    with kafka_server(settings={"kafkalog.http.listener": "127.0.0.1:0"}, topics={"orders": 1}) as server:
        producer = Producer({"bootstrap.servers": server.bootstrap})
        for _ in range(10):
            producer.produce("orders", b"x", partition=0)
        assert producer.flush(20) == 0
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "billing<1>"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)
        consumer.close()
        assert server.http_port is not None
        _, html = get_page(server.http_port, "/")
        assert "<b>billing&lt;1&gt;</b>" in html
        assert re.search(r"billing.*lag 6<", html)
        assert re.search(r"orders</b>.*10 offsets", html)
        _, text = get_page(server.http_port, "/metrics")
        assert re.search(r'kafkalog_server_request_seconds_count\{api="produce"\} [1-9]', text)
        assert 'kafkalog_append_records_total{topic="orders"' in text


def test_the_document_names_every_metric_of_a_server() -> None:
    text = (SOURCES / "docs" / "server.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `(kafkalog_server_\w+)` \| (\w+) \|", text, re.MULTILINE))
    assert shown == {family.name: family.kind for family in families(ServerMetrics())}


def test_times_are_told_in_seconds_with_their_sum_and_their_buckets() -> None:
    metrics = ServerMetrics()
    for took_ms, worked_ms, code in ((1.0, 0.5, 0), (2000.0, 0.5, 0), (60_000.0, 1.0, 3)):
        metrics.requests.done(APIS[0], took_ms, worked_ms, code)
    text = [line for family in families(metrics) for line in lines(family)]
    found = [line for line in text if line.startswith("kafkalog_server_request_") and 'api="produce"' in line]
    shown = dict(line.rstrip().rsplit(" ", 1) for line in found)
    name, of_produce = "kafkalog_server_request_seconds", '{api="produce"}'
    assert float(shown[f"{name}_sum{of_produce}"]) == 62.001 and shown[f"{name}_count{of_produce}"] == "3"
    buckets = {float(re.findall(r'le="(.*?)"', line)[0]): int(shown[line]) for line in shown if "_bucket" in line}
    assert buckets == {bound: (bound >= 0.001) + (bound >= 2.5) + (bound == float("inf")) for bound in buckets}
    assert sorted(buckets) == [*(bound / 1000 for bound in BOUNDS_MS), float("inf")]
    assert float(shown[f"kafkalog_server_request_work_seconds_total{of_produce}"]) == 0.002
    assert shown['kafkalog_server_request_errors_total{api="produce",error_code="3"}'] == "1"


@pytest.mark.parametrize("turns", range(5))
def test_a_stop_leaves_no_connection_open(turns: int) -> None:
    """Whatever the loop has done for it by then: accepted, made a task, or begun to read."""

    async def run() -> None:
        listener = HttpListener("127.0.0.1", 0, {})
        await listener.start()
        links = [socket.create_connection(("127.0.0.1", listener.port), timeout=60) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.stop()
        await asyncio.sleep(0)
        for link in links:
            with link:
                assert await asyncio.to_thread(_ended, link)

    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        asyncio.run(run())
        gc.collect()


def _ended(link: socket.socket) -> bool:
    try:
        return link.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ServerDidNotStart, match="cannot listen at 127.0.0.1"):
            with kafka_server(settings={"kafkalog.http.listener": where}):
                raise AssertionError("it started")
