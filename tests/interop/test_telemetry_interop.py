"""Metrics that clients push (KIP-714) are taken as by a broker of 4.4 with a plug-in for telemetry."""

from __future__ import annotations

import subprocess
from base64 import b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Any

from kafkalog.testing import kafka_server
from tests.interop import toolchain
from tests.interop.broker import Broker
from tests.interop.telemetry_conversation import MAX_BYTES, conversation

LIMIT = {"telemetry.max.bytes": str(MAX_BYTES)}


def shown(client_instance_id: bytes) -> str:
    return urlsafe_b64encode(client_instance_id).rstrip(b"=").decode()


def of_the_broker(path: Path) -> tuple[list[Any], list[tuple[Any, ...]]]:
    received = path / "received"
    settings = {"metric.reporters": "Receiver", "receiver.file": str(received), **LIMIT}
    plug_in = toolchain.classes(toolchain.HERE / "java_44", toolchain.jars_44())
    with Broker(None, path / "work", path / "data", settings, version="4.4", plug_in=plug_in) as broker:
        answers = list(conversation(broker.bootstrap))
    rows = []
    for line in received.read_text(encoding="utf-8").splitlines():
        client_instance_id, client_id, interval_ms, is_terminating, data = line.split(" ")
        rows.append((client_instance_id, client_id, int(interval_ms), is_terminating == "true", b64decode(data)))
    return answers, rows


def of_ours() -> tuple[list[Any], list[tuple[Any, ...]]]:
    with kafka_server(telemetry=True, settings=LIMIT) as server:
        answers = list(conversation(server.bootstrap))
        rows = [
            (shown(one.client_instance_id.bytes), one.client_id, one.push_interval_ms, one.is_terminating, one.metrics)
            for one in server.pushed_metrics()
        ]
    return answers, rows


def test_pushes_are_answered_and_received_as_by_the_broker(tmp_path: Path) -> None:
    theirs, received = of_the_broker(tmp_path)
    ours, seen = of_ours()
    assert [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]] == []
    assert seen == received
    assert [row[-1] for row in seen[:2]] == [b"first", b"last"]


def test_a_client_of_java_pushes_its_metrics() -> None:
    with kafka_server(topics="t", telemetry=True) as server:
        server.subscribe_metrics("org.apache.kafka.producer.", interval_ms=200)
        command = toolchain.java_44_command("Pushing", server.bootstrap)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        pushed = server.pushed_metrics("of Java")
    assert {shown(one.client_instance_id.bytes) for one in pushed} == {done.stdout.strip()}
    assert any(b"org.apache.kafka.producer.record.send.total" in one.metrics for one in pushed)
    assert pushed[0].software_name == "apache-kafka-java"
