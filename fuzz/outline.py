"""Outlines of Produce requests for the rules of a test cluster, against a plain reading of the same bytes."""

from __future__ import annotations

from uuid import UUID

from kafkalog._core.messages.outline import PassedProduces
from kafkalog.server.wire.versions import APIS, PRODUCE
from kafkalog.server.wire.writer import write_request

SEALS = False
BY_ID = 13
FLEXIBLE = APIS[PRODUCE].first_flexible
MOST_BYTES, MOST_WANTED = 1024, 16
WANTED = ((), (0,), (1, 3), tuple(range(16)), tuple(range(17)), (2**31 - 1, 2**31, -1))
"""Partitions of rules; the first byte of an input is the number of a row, modulo their count."""
PASSED = [PassedProduces(FLEXIBLE, BY_ID, one) for one in WANTED]


class Reading:
    """A place in a request, that raises EOFError for a field that is not whole."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.version = 0

    @property
    def is_flexible(self) -> bool:
        """Return True if lengths are varints, and tags follow each struct."""
        return self.version >= FLEXIBLE

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        if self.at + size > len(self.data):
            raise EOFError
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        """Return the next number, with its sign."""
        return int.from_bytes(self.take(size), "big", signed=True)

    def varint(self) -> int:
        """Return the next number of up to five bytes, of which 32 bits count."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFF
        raise EOFError

    def count(self) -> int:
        """Return the count of an array, below 0 for null."""
        return self.varint() - 1 if self.is_flexible else self.number(4)

    def sized(self, bytes_of_size: int) -> bytes:
        """Return text or bytes, with their size before them."""
        begin = self.at
        size = self.varint() - 1 if self.is_flexible else self.number(bytes_of_size)
        self.take(max(size, 0))
        return self.data[begin : self.at]

    def no_tags(self) -> bytes:
        """Return the end of a struct, which must have no tags."""
        if not self.is_flexible:
            return b""
        if (found := self.take(1)) != b"\0":
            raise EOFError
        return found


def head(read: Reading) -> bytes:
    """Return version, client and transactional id; EOFError for another call."""
    if len(read.data) < 10:
        raise EOFError
    if read.number(2) != PRODUCE:
        raise EOFError
    version = read.take(2)
    read.take(4)
    client = read.sized(2)  # the size of this one is never a varint
    read.version = int.from_bytes(version, "big", signed=True)
    return version + client + read.no_tags() + read.sized(2)


def topic(read: Reading, wanted: tuple[int, ...]) -> bytes:
    """Return the name or id of a topic, and a bit for each wanted partition."""
    name, found = read.take(16) if read.version >= BY_ID else read.sized(2), 0
    count = read.count()
    if count < 0:
        raise EOFError
    for _ in range(count):
        index = read.number(4)
        found |= 1 << wanted.index(index) if index in wanted else 0
        read.sized(4)
        read.no_tags()
    read.no_tags()
    return name + found.to_bytes(2, "little")


def expected(data: bytes, wanted: tuple[int, ...]) -> bytes | None:
    """Return the outline as Python reads it."""
    read = Reading(data)
    if len(wanted) > MOST_WANTED:
        return None
    try:
        outline = head(read)
        read.take(6)  # acks and timeout
        if (count := read.count()) < 0:
            return None
        for _ in range(count):
            outline += topic(read, wanted)
    except EOFError:
        return None
    return outline if len(outline) <= MOST_BYTES else None


def run(data: memoryview) -> None:
    """The outline is that of a plain reading, and a request passes once its outline was added."""
    if not data:
        return
    number = data[0] % len(WANTED)
    passed, wanted = PASSED[number], tuple(one for one in WANTED[number] if 0 <= one < 2**31)
    frame = data[1:]
    outline = passed.outline(frame)
    assert outline == passed.outline(bytearray(frame)) == expected(bytes(frame), wanted)
    if outline is None:
        assert frame not in passed
    else:
        passed.add(outline)
        assert frame in passed
    frame.release()


def seeds() -> list[bytes]:
    """Requests of each version, with no, one and several topics, cut, and with a long name."""
    made = []
    for version in range(APIS[PRODUCE].first_served, APIS[PRODUCE].newest + 1):
        for at, names in enumerate(([], ["t"], ["orders", "other"], ["t" * 500, "u" * 490])):
            rows = [
                {"name": one, "topic_id": UUID(int=len(one)), "partition_data": [
                    {"index": index, "records": b"r" * index} for index in range(at + 1)]}
                for one in names
            ]  # fmt: skip
            tree = {"transactional_id": "app" if at % 2 else None, "acks": -1, "timeout": 9, "topic_data": rows}
            client = b"\xff\xff" if at == 1 else b"\0\4test"
            tags = b"\0" if version >= FLEXIBLE else b""
            frame = bytes(2) + version.to_bytes(2, "big") + bytes(4) + client + tags
            frame += bytes(write_request(PRODUCE, version, tree))
            made += [bytes([at]) + frame, bytes([at]) + frame[: len(frame) // 2], bytes([5]) + frame + b"\0"]
    return made
