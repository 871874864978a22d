"""kcat against a broker: one method per operation, on a topic that another client has created."""

import json
import subprocess
from typing import Any

from tests.interop.client_kit import LIMIT_S

QUICK_END = "fetch.wait.max.ms=50"
"""How long it waits for more at the end of a topic."""

class Kcat:
    """Operations of kcat."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self.topic = topic

    def close(self) -> None:
        """Nothing is left open."""

    def _run(self, *arguments: str, given: str = "") -> str:
        command = ["kcat", "-b", self._bootstrap, *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    def _create(self, partitions: int) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        admin.create_topics([NewTopic(self.topic, partitions, 1)])[self.topic].result(LIMIT_S)

    def _send(self, count: int, *arguments: str, first: int = 0) -> None:
        lines = "".join(f"key-{n}:value-{n}\n" for n in range(first, first + count))
        self._run("-P", "-t", self.topic, "-K:", *arguments, given=lines)

    def _all(self, count: int, *arguments: str) -> None:
        form = ("-f", "%s\\n", "-X", QUICK_END)
        found = self._run("-C", "-t", self.topic, "-o", "beginning", "-e", "-q", *form, *arguments).split()
        assert sorted(found) == sorted(f"value-{n}" for n in range(count))

    def acks(self, acks: str) -> None:
        self._create(2)
        self._send(50, "-X", f"acks={acks}")
        self._all(50)

    def codec(self, name: str) -> None:
        self._create(2)
        self._send(50, "-z", name)
        self._all(50)

    def headers_and_times(self) -> None:
        self._create(1)
        self._run("-P", "-t", self.topic, "-H", "a=1", "-H", "b=", "-Z", "-K:", given="key:\n")
        found = self._run("-C", "-t", self.topic, "-e", "-q", "-J", "-X", QUICK_END)
        one: dict[str, Any] = json.loads(found)
        assert (one["key"], one["payload"], one["headers"]) == ("key", None, ["a", "1", "b", ""])
        assert one["ts"] > 10**12

    def idempotent(self) -> None:
        self._create(2)
        self._send(300, "-X", "enable.idempotence=true", "-X", "batch.size=400")
        self._all(300)

    def transactions(self) -> None:
        self._create(2)
        self._send(20, "-X", f"transactional.id={self.topic}")
        self._all(20, "-X", "isolation.level=read_committed")

    def offsets(self) -> None:
        self._create(1)
        self._send(10)
        for asked, offset in (("-1", 10), ("-2", 0)):
            assert f"offset {offset}" in self._run("-Q", "-t", f"{self.topic}:0:{asked}")

    def group_commit_and_reset(self) -> None:
        self._create(1)
        self._send(10)
        group = ("-G", self.topic, "-q", "-X", "auto.offset.reset=earliest", "-f", "%o\\n")
        assert self._run(*group, "-c", "4", self.topic).split() == ["0", "1", "2", "3"]
        assert self._run(*group, "-c", "6", self.topic).split()[-1] == "9"

    def admin_cluster(self) -> None:
        self._create(2)
        found = json.loads(self._run("-L", "-J", "-t", self.topic))
        assert [one["id"] for one in found["brokers"]] == [1]
        assert len(found["topics"][0]["partitions"]) == 2
