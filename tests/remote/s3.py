"""A server of S3 on loopback, in a separate process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
server.start()
print(server._server.server_port, flush=True)
sys.stdin.read()
"""


@contextmanager
def s3_server() -> Iterator[tuple["subprocess.Popen[str]", dict[str, Any]]]:
    """The server's process, and the options with which fsspec reaches it without repeating failed requests."""
    pytest.importorskip("s3fs", reason="s3fs is not installed: pip install kafkalog[test]")
    pytest.importorskip("moto.server", reason="moto is not installed: pip install kafkalog[test]")
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=os.environ | keys, text=True,
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            port = next(int(line) for line in server.stdout if line.strip().isdigit())
            once = {"retries": {"max_attempts": 0}, "connect_timeout": 2}
            options = {"key": "testing", "secret": "testing", "endpoint_url": f"http://127.0.0.1:{port}"}
            yield server, {**options, "config_kwargs": once}
        finally:
            server.kill()
