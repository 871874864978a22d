"""Drives mutated requests into a server over many connections, and looks at the server at intervals."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.server.fuzzing.mutations import TOPICS, Mutator
from tests.server.fuzzing.served import Client, Served

CONNECTIONS: Final = 32
LOGINS: Final = 3
"""So many of the connections know no password, and try to log in."""
ANSWER_S: Final = 0.3
"""So long a stranger waits for its answers; then it goes away."""
SETTLE_S: Final = 120
"""So long what strangers asked for may go on after they have gone."""
_OF_A_PARTITION: Final = 6
"""Files of a log that may be open: the segments', and indexes that are written."""
_LAST: Final = struct.pack(">hhih", 18, 0, 0x7F7F7F7F, -1)
_END: Final = struct.pack(">i", len(_LAST)) + _LAST
_REPORTS: Final = re.compile(
    r"ERROR: AddressSanitizer|runtime error:|Fatal Python error|Traceback \(most recent|worker \d+ ended"
)


class Finding(AssertionError):
    """Something that a server must not do."""


@dataclass
class Limits:
    """Limits that hold at every check."""

    rss_mb: float
    answer_s: float
    """How long the client that does nothing wrong may wait."""
    descriptors: int = 100
    """More than there were at the start, with no stranger connected, beside those of the partitions that there are."""


@dataclass
class Figures:
    """Counts of the steps done and the results seen."""

    sent: int = 0
    answered: int = 0
    closed: int = 0
    silent: int = 0
    seconds: float = 0.0
    highest_rss_mb: float = 0.0
    first_rss_mb: float = 0.0
    slowest_s: float = 0.0
    descriptors: tuple[int, int] = (0, 0)
    tracebacks: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        rate = self.sent / self.seconds if self.seconds else 0.0
        return (
            f"{self.sent} requests, {rate:.0f}/s; {self.answered} answers, {self.closed} connections closed by the "
            f"server, {self.silent} given up; memory {self.first_rss_mb:.0f} MB at first, {self.highest_rss_mb:.0f} MB "
            f"at most; descriptors {self.descriptors[0]} and {self.descriptors[1]} after; a well-behaved client "
            f"waited {self.slowest_s:.2f} s at most; {sum(self.tracebacks.values())} findings in the log"
        )


class Driver:
    """One server and those who send to it. `sent_last` has what a finding may be owed to."""

    def __init__(self, served: Served, seed: int, limits: Limits) -> None:
        self._served = served
        self._limits = limits
        self.figures = Figures()
        self.sent_last: deque[bytes] = deque(maxlen=10_000)
        self._left = 0
        began = time.monotonic()
        client = Client(served.ports["SASL_PLAINTEXT"], limits.answer_s)
        ids = [client.topic(name, 2) for name in TOPICS]
        client.write_and_read(b"first", served.workers)
        client.close()
        self.figures.slowest_s = time.monotonic() - began
        self._mutator = Mutator(seed, ids, served.directories)
        for _ in range(500):
            self._mutator.frame()  # what it needs is imported now
        self._first_descriptors = served.descriptors()
        self.figures.first_rss_mb = served.rss_mb()

    async def run(self, count: int, every: int) -> None:
        """Send `count` requests, with a look at the server after each `every`. Finding for what must not be."""
        began = time.monotonic()
        while count > 0:
            self._left = min(every, count)
            count -= self._left
            await asyncio.gather(*map(self._stranger, range(CONNECTIONS)))
            await asyncio.to_thread(self.look)
            self.figures.seconds = time.monotonic() - began
            print(f"{self.figures}", flush=True)

    def look(self) -> None:
        """The server lives, said nothing bad, serves, and holds neither memory nor descriptors of strangers."""
        served, figures = self._served, self.figures
        if not served.is_alive:
            raise Finding(f"the server ended: {served.log()[-6000:]}")
        figures.tracebacks = _findings(served.log())
        rss_mb = served.rss_mb()
        figures.highest_rss_mb = max(figures.highest_rss_mb, rss_mb)
        if rss_mb > self._limits.rss_mb:
            raise Finding(f"the server has {rss_mb:.0f} MB, {self._limits.rss_mb} are allowed")
        began = time.monotonic()
        try:
            client = Client(served.ports["SASL_PLAINTEXT"], self._limits.answer_s)
            client.write_and_read(b"value %d" % figures.sent, served.workers)
            figures.slowest_s = max(figures.slowest_s, time.monotonic() - began)
            self._look_at_descriptors(client)
            client.close()
        except Finding:
            raise
        except (OSError, AssertionError) as error:
            raise Finding(f"a client that does nothing wrong is not served: {error!r}") from error

    def _look_at_descriptors(self, client: Client) -> None:
        until = time.monotonic() + SETTLE_S
        while True:  # the server creates all of a topic's partitions, even after the client disconnects
            client.tidy()
            partitions = sum(client.partitions().values())
            now = self._served.descriptors()
            if now <= self._first_descriptors + self._limits.descriptors + _OF_A_PARTITION * partitions:
                break
            if time.monotonic() > until:
                raise Finding(f"{now} descriptors are open for {partitions} partitions, and no client is connected")
            time.sleep(0.5)
        self.figures.descriptors = (self._first_descriptors, now)

    async def _stranger(self, number: int) -> None:
        is_login = number < LOGINS
        ports = self._served.all_ports["SASL_PLAINTEXT" if is_login else "PLAINTEXT"]
        port = ports[number % len(ports)]
        while self._left > 0:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    await self._connection(reader, writer, is_login)
                finally:
                    sock = writer.get_extra_info("socket")
                    with suppress(OSError):  # goes at once, and leaves no port behind
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    writer.transport.abort()
            if not self._served.is_alive:
                return

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_login: bool) -> None:
        chance, figures = self._mutator.random, self.figures
        while self._left > 0:
            frames = [self._mutator.frame(is_login=is_login) for _ in range(chance.choice((1, 1, 1, 1, 2, 3)))]
            self._left -= len(frames)
            figures.sent += len(frames)
            self.sent_last.extend(frames)
            writer.write(b"".join(frames) + _END)
            if chance.random() < 0.01:
                return  # it does not wait for an answer
            try:
                async with asyncio.timeout(ANSWER_S):
                    await self._answers(reader)
            except TimeoutError:
                figures.silent += 1
                return
            except (ConnectionError, asyncio.IncompleteReadError):
                figures.closed += 1
                return

    async def _answers(self, reader: asyncio.StreamReader) -> None:
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            if not 4 <= size <= 1 << 27:
                raise Finding(f"an answer of {size} bytes")
            answer = await reader.readexactly(size)
            if answer[:4] == _LAST[4:8]:
                return
            self.figures.answered += 1


def _findings(log: str) -> Counter[str]:
    """Count the findings in a log, by their last line."""
    found: Counter[str] = Counter()
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if _REPORTS.search(line):
            last = next((one for one in lines[number + 1 :] if one and not one.startswith((" ", "\t"))), line)
            found[last[:200]] += 1
    return found


def keep(path: Path, frames: deque[bytes]) -> None:
    """Write frames down, each with its length as it was sent, so that they can be sent again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(struct.pack(">I", len(frame)) + frame for frame in frames))
