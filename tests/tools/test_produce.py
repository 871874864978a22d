"""Producers of lines, whole files and JSON count the bytes of their input as they read it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog.tools.produce.json_lines import JsonProducer
from kafkalog.tools.produce.text import Encoding, Producer
from tests.tools.test_produce_queue import Journal


def make_producer(sink: Journal, heard: list[int]) -> Producer:
    return Producer([sink], Encoding(batch_bytes=1000), milliseconds=lambda: 5, progress=heard.append)


def read_lines(sink: Journal, heard: list[int], fd: int) -> None:
    producer = make_producer(sink, heard)
    producer.read_lines(fd, "in")
    producer.flush()
    producer.close()


def read_whole(sink: Journal, heard: list[int], fd: int) -> None:
    producer = make_producer(sink, heard)
    producer.read_whole(fd, "in", None)
    producer.flush()
    producer.close()


def read_json(sink: Journal, heard: list[int], fd: int) -> None:
    producer = JsonProducer([sink], batch_bytes=1000, milliseconds=lambda: 5, progress=heard.append)
    producer.read_lines(fd, "in")
    producer.flush()
    producer.close()


@pytest.mark.parametrize("read", [read_lines, read_whole, read_json])
def test_progress_counts_each_byte_of_the_input_once(
    tmp_path: Path, read: Callable[[Journal, list[int], int], None]
) -> None:
    path = tmp_path / "in"
    path.write_bytes(b'{"payload":"one"}\n\n{"payload":"two"}\n{"payload":"three"}')
    sink, heard = Journal(), list[int]()
    fd = os.open(path, os.O_RDONLY)
    try:
        read(sink, heard, fd)
    finally:
        os.close(fd)
    assert sum(heard) == path.stat().st_size and sink.seen
