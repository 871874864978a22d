"""A server of Google Cloud Storage on loopback, in a separate process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_SERVER = """
import sys
from gcp_storage_emulator.server import create_server
server = create_server("127.0.0.1", 0, in_memory=True, default_bucket="bucket")
server.start()
print(server._api._httpd.server_address[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def gcs_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The options with which fsspec reaches the server, which has the bucket `bucket`."""
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # it would ask over gRPC first, for a minute
    pytest.importorskip("gcsfs", reason="gcsfs is not installed: pip install kafkalog[test]")
    pytest.importorskip("gcp_storage_emulator", reason="its emulator is not installed: pip install kafkalog[test]")
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=os.environ, text=True,
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            yield {"token": "anon", "project": "test", "endpoint_url": f"http://127.0.0.1:{port}"}
        finally:
            server.kill()
