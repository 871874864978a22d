"""A kafkalog HTTP listener in a thread with its own event loop, and raw bytes to send it."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

from kafkalog.server.status.http import HttpListener, Page


@contextmanager
def serve_pages(pages: Mapping[str, Callable[[], Awaitable[Page]]]) -> Iterator[HttpListener]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="http-under-test")
    thread.start()
    listener = HttpListener("127.0.0.1", 0, pages)
    try:
        asyncio.run_coroutine_threadsafe(listener.start(), loop).result(10)
        yield listener
    finally:
        asyncio.run_coroutine_threadsafe(listener.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def send_request(port: int, request: bytes) -> bytes:
    """All that the listener answers until it closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
        link.sendall(request)
        return read_all(link)


def read_all(link: socket.socket) -> bytes:
    found = b""
    while piece := link.recv(1 << 16):
        found += piece
    return found


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])
