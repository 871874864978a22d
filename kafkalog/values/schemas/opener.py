"""Requests over HTTP that end in time: a server that sends its answer byte by byte is given up."""

from __future__ import annotations

import io
import socket
from functools import cache, partial
from http.client import HTTPResponse
from typing import Any, Final
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

from kafkalog.util.clock import SYSTEM_CLOCK

SLOWEST: Final = 10
"""Time-outs that a whole request may take."""


class _TimelyReader(io.RawIOBase):
    """Reader of a socket until a deadline; TimeoutError from then on."""

    def __init__(self, sock: socket.socket, deadline_ms: float) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._deadline_ms = deadline_ms
        self._timeout_s = sock.gettimeout()

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def readinto(self, buffer: Any) -> int | None:
        left_s = (self._deadline_ms - SYSTEM_CLOCK.monotonic_ms()) / 1000
        whole = self._timeout_s is not None and self._timeout_s < left_s
        try:
            if left_s <= 0:
                raise TimeoutError
            self._sock.settimeout(self._timeout_s if whole else left_s)
            return self._raw.readinto(buffer)
        except TimeoutError:
            if whole:
                raise
            raise TimeoutError("its answer took too long") from None

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimelyResponse(HTTPResponse):
    """An answer whose status, headers and body come before a deadline."""

    def __init__(self, sock: socket.socket, *args: Any, deadline_ms: float, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_TimelyReader(sock, deadline_ms))


def _timely(connection: Any) -> Any:
    """Return what makes connections of a class, each with a deadline for its answer."""

    def connect(host: str, *, timeout: float, **options: Any) -> Any:
        made = connection(host, timeout=timeout, **options)
        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + 1000 * SLOWEST * timeout
        made.response_class = partial(_TimelyResponse, deadline_ms=deadline_ms)
        return made

    return connect


class _Http(HTTPHandler):
    def do_open(self, http_class: Any, req: Request, **http_conn_args: Any) -> HTTPResponse:
        return super().do_open(_timely(http_class), req, **http_conn_args)


class _Https(HTTPSHandler):
    def do_open(self, http_class: Any, req: Request, **http_conn_args: Any) -> HTTPResponse:
        return super().do_open(_timely(http_class), req, **http_conn_args)


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


@cache
def opener() -> OpenerDirector:
    """Return the opener of all registries, which does not follow redirects.

    A request takes at most SLOWEST of its time-outs, from the connection to the last byte.
    """
    return build_opener(_Http(), _Https(), _NoRedirect())
