"""Nodes with a network each (Linux, root): a link that is down takes packets without a word, as a pulled cable does."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.server.replicated.cluster import NODES, SETTINGS, Cluster

PORT: Final = 9092
_PREFIX_BITS: Final = 24


def why_not() -> str | None:
    """Why there can be no networks here; None where there can."""
    if shutil.which("ip") is None:
        return "there is no program ip (iproute2)"
    probe = f"kl{os.getpid()}"
    for words in (("netns", "add", probe), ("link", "add", f"{probe}b", "type", "bridge")):
        done = _ip(*words, check=False)
        if done.returncode:
            break
    _ip("link", "del", f"{probe}b", check=False)
    _ip("netns", "del", probe, check=False)
    return f"ip {' '.join(words)}: {done.stderr.strip()}" if done.returncode else None


class NamespacedCluster(Cluster):
    """Three nodes at a bridge, each in a network namespace; clients are on this side of the bridge."""

    def __init__(self, directory: Path, settings: Mapping[str, object] = SETTINGS) -> None:
        super().__init__(directory, 0, settings)
        self._name = f"kl{os.getpid()}"
        self._net = f"10.213.{os.getpid() % 250}"

    def __enter__(self) -> NamespacedCluster:
        try:
            self._make()
        except BaseException:
            self._unmake()
            raise
        super().__enter__()  # ends itself where it fails
        return self

    def __exit__(self, *given: object) -> None:
        try:
            super().__exit__(*given)
        finally:
            self._unmake()

    def address(self, node: int) -> tuple[str, int]:
        return f"{self._net}.{node}", PORT

    def advertised_address(self, node: int) -> str:
        return f"{self._net}.{node}:{PORT}"

    def inside(self, node: int) -> list[str]:
        return ["ip", "netns", "exec", self._of(node)]

    # Networks

    def unplug(self, node: int) -> None:
        """Nothing comes to a node and nothing from it, its clients included."""
        _ip("link", "set", f"{self._of(node)}v", "down")

    def plug(self, node: int) -> None:
        """As before."""
        _ip("link", "set", f"{self._of(node)}v", "up")

    def cut(self, source: int, target: int) -> None:
        """Packets of one node do not come to another one; what clients send and get does."""
        _ip("-n", self._of(source), "route", "add", "blackhole", f"{self._net}.{target}/32")

    def mend(self, source: int, target: int) -> None:
        """As before."""
        _ip("-n", self._of(source), "route", "del", "blackhole", f"{self._net}.{target}/32")

    def _of(self, node: int) -> str:
        return f"{self._name}-{node}"

    def _make(self) -> None:
        bridge = f"{self._name}b"
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{self._net}.254/{_PREFIX_BITS}", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for node in NODES:
            space, here = self._of(node), f"{self._of(node)}v"
            _ip("netns", "add", space)
            _ip("link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", here, "master", bridge, "up")
            _ip("-n", space, "addr", "add", f"{self._net}.{node}/{_PREFIX_BITS}", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")

    def _unmake(self) -> None:
        for node in NODES:
            _ip("link", "del", f"{self._of(node)}v", check=False)  # a namespace that goes takes its time for that
            _ip("netns", "del", self._of(node), check=False)
        _ip("link", "del", f"{self._name}b", check=False)


def _ip(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True, stdin=subprocess.DEVNULL)
