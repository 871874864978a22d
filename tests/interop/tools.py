"""Kafka's command line tools, each used on a server as one would from a shell: the second table of docs/clients.md."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.interop.client_kit import Deadline, until
from tests.interop.clients_java import VERSIONS, JavaClients, ToolResult

TOOLS: Final = "org.apache.kafka.tools."
MOVED: Final = {
    "ConsoleProducer": "kafka.tools.ConsoleProducer",
    "AclCommand": "kafka.admin.AclCommand",
    "BrokerApiVersionsCommand": "kafka.admin.BrokerApiVersionsCommand",
    "ClusterTool": "kafka.tools.ClusterTool",
}
"""Where 3.9 has tools that lie with the others since."""


class Tools:
    """The tools of a version, for one server; each method is one row of the table, on a separate topic."""

    def __init__(self, java: JavaClients, bootstrap: str, topic: str, work: Path) -> None:
        self._java = java
        self._bootstrap = bootstrap
        self._topic = topic
        self._work = work
        self._deadline = Deadline(60)
        self._is_old = java.version == "3.9"

    def _run(self, tool: str, *arguments: str, given: str = "", status: int = 0) -> str:
        name = MOVED[tool] if self._is_old and tool in MOVED else tool if "." in tool else TOOLS + tool
        if tool.startswith("consumer."):
            name = TOOLS + tool
        where = () if tool == "ProducerPerformance" else ("--bootstrap-server", self._bootstrap)
        result: ToolResult = self._java.tool(name, [*where, *arguments], given)
        assert result.status == status, (tool, arguments, result)
        return result.output

    def _create(self, partitions: int = 1) -> None:
        self._run("TopicCommand", "--create", "--topic", self._topic, "--partitions", str(partitions))

    def _produce(self, count: int) -> None:
        lines = "".join(f"key-{n}:value-{n}\n" for n in range(count))
        form = ("--property", "parse.key=true", "--property", "key.separator=:")
        self._run("ConsoleProducer", "--topic", self._topic, *form, given=lines)

    def _end(self, at: str = "-1") -> int:
        found = self._run("GetOffsetShell", "--topic", self._topic, "--time", at)
        offsets = re.findall(rf"^{re.escape(self._topic)}:\d+:(\d+)$", found, re.MULTILINE)
        assert offsets, found
        return sum(map(int, offsets))

    def topics(self) -> None:
        """kafka-topics: create, alter, describe, list, delete"""
        self._run("TopicCommand", "--create", "--topic", self._topic, "--partitions", "2", "--config",
                  "retention.ms=60000")  # fmt: skip
        self._run("TopicCommand", "--alter", "--topic", self._topic, "--partitions", "3")
        found = self._run("TopicCommand", "--describe", "--topic", self._topic)
        assert "PartitionCount: 3" in found
        assert "retention.ms=60000" in found
        assert self._topic in self._run("TopicCommand", "--list").split()
        self._run("TopicCommand", "--delete", "--topic", self._topic)
        until(self._deadline, lambda: self._topic not in self._run("TopicCommand", "--list").split())

    def configs(self) -> None:
        """kafka-configs: topics, brokers, clients, users"""
        self._create()
        tool = "ConfigCommand" if self._java.version == "4.4" else "kafka.admin.ConfigCommand"
        topic = ("--entity-type", "topics", "--entity-name", self._topic)
        self._run(tool, *topic, "--alter", "--add-config", "retention.ms=61000")
        until(self._deadline, lambda: "retention.ms=61000" in self._run(tool, *topic, "--describe"))
        assert "cleanup.policy=delete" in self._run(tool, *topic, "--describe", "--all")
        self._run(tool, *topic, "--alter", "--delete-config", "retention.ms")
        until(self._deadline, lambda: "retention.ms=61000" not in self._run(tool, *topic, "--describe"))
        self._run(tool, "--entity-type", "brokers", "--entity-name", "1", "--describe")
        client = ("--entity-type", "clients", "--entity-name", self._topic)
        self._run(tool, *client, "--alter", "--add-config", "producer_byte_rate=1000000000")
        until(self._deadline, lambda: "producer_byte_rate=1.0E9" in self._run(tool, *client, "--describe"))
        user = ("--entity-type", "users", "--entity-name", self._topic)
        self._run(tool, *user, "--alter", "--add-config", "SCRAM-SHA-512=[iterations=4096,password=secret]")
        until(self._deadline, lambda: "iterations=4096" in self._run(tool, *user, "--describe"))

    def console_producer(self) -> None:
        """kafka-console-producer, with every codec"""
        self._create()
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            self._run("ConsoleProducer", "--topic", self._topic, "--compression-codec", codec, given="one\ntwo\n")
        assert self._end() == 10

    def console_consumer(self) -> None:
        """kafka-console-consumer, alone and in a group"""
        self._create(2)
        self._produce(6)
        common = ("--topic", self._topic, "--from-beginning", "--max-messages", "6", "--timeout-ms", "15000")
        expected = sorted(f"value-{n}" for n in range(6))
        for more in ((), ("--group", self._topic)):
            found = self._run("consumer.ConsoleConsumer", *common, *more)
            assert sorted(line for line in found.split() if line.startswith("value")) == expected

    def get_offsets(self) -> None:
        """kafka-get-offsets"""
        self._create()
        self._produce(5)
        assert (self._end("-1"), self._end("-2"), self._end("-3")) == (5, 0, self._end("max-timestamp"))

    def consumer_groups(self) -> None:
        """kafka-consumer-groups: list, describe, reset, delete offsets, delete"""
        self._create()
        self._produce(5)
        tool, group = "consumer.group.ConsumerGroupCommand", ("--group", self._topic)
        self._run(tool, *group, "--topic", self._topic, "--reset-offsets", "--to-offset", "2", "--execute")
        assert self._topic in self._run(tool, "--list")
        assert re.search(rf"{self._topic} +0 +2 +5 +3\b", self._run(tool, *group, "--describe"))
        assert "Empty" in self._run(tool, *group, "--describe", "--state")
        self._run(tool, *group, "--describe", "--members")
        self._run(tool, *group, "--delete-offsets", "--topic", self._topic)
        self._run(tool, *group, "--topic", self._topic, "--reset-offsets", "--to-earliest", "--execute")
        self._run(tool, *group, "--delete")
        assert self._topic not in self._run(tool, "--list")

    def producer_perf(self) -> None:
        """kafka-producer-perf-test"""
        self._create()
        found = self._run(
            "ProducerPerformance", "--topic", self._topic, "--num-records", "2000", "--record-size", "100",
            "--throughput", "-1", "--producer-props", f"bootstrap.servers={self._bootstrap}", "acks=all",
        )  # fmt: skip
        assert "2000 records sent" in found
        assert self._end() == 2000

    def consumer_perf(self) -> None:
        """kafka-consumer-perf-test"""
        self._create()
        self._produce(200)
        count = "--messages" if self._is_old else "--num-records"
        found = self._run("ConsumerPerformance", "--topic", self._topic, count, "200", "--timeout", "15000")
        assert re.search(r", 200, ", found), found

    def verifiable_producer(self) -> None:
        """kafka-verifiable-producer"""
        self._create()
        self._run("VerifiableProducer", "--topic", self._topic, "--max-messages", "300", "--acks", "-1")
        until(self._deadline, lambda: self._end() == 300)

    def verifiable_consumer(self) -> None:
        """kafka-verifiable-consumer"""
        self._create()
        self._produce(50)
        found = self._run(
            "VerifiableConsumer", "--topic", self._topic, "--group-id", self._topic, "--max-messages", "50",
            "--reset-policy", "earliest",
        )  # fmt: skip
        events = [json.loads(line) for line in found.splitlines() if line.startswith("{")]
        assert sum(one["count"] for one in events if one["name"] == "records_consumed") == 50
        assert any(one["name"] == "offsets_committed" and one["success"] for one in events)

    def delete_records(self) -> None:
        """kafka-delete-records"""
        self._create()
        self._produce(5)
        file = self._work / "delete.json"
        file.write_text(json.dumps({"partitions": [{"topic": self._topic, "partition": 0, "offset": 2}], "version": 1}))
        self._run("DeleteRecordsCommand", "--offset-json-file", str(file))
        assert self._end("-2") == 2

    def log_dirs(self) -> None:
        """kafka-log-dirs"""
        self._create()
        assert f"{self._topic}-0" in self._run("LogDirsCommand", "--describe", "--topic-list", self._topic)

    def acls(self) -> None:
        """kafka-acls: add, list, remove"""
        what = ("--topic", self._topic)
        who = ("--allow-principal", "User:somebody", "--operation", "Read")
        self._run("AclCommand", "--add", *who, *what)
        until(self._deadline, lambda: "User:somebody" in self._run("AclCommand", "--list", *what))
        self._run("AclCommand", "--remove", "--force", *who, *what)
        until(self._deadline, lambda: "User:somebody" not in self._run("AclCommand", "--list", *what))

    def api_versions(self) -> None:
        """kafka-broker-api-versions"""
        assert "Produce(0): 0 to" in self._run("BrokerApiVersionsCommand")

    def transactions(self) -> None:
        """kafka-transactions: list, describe-producers"""
        self._create()
        self._produce(2)
        self._run("TransactionsCommand", "list")
        self._run("TransactionsCommand", "describe-producers", "--topic", self._topic, "--partition", "0")

    def cluster(self) -> None:
        """kafka-cluster cluster-id"""
        name = MOVED["ClusterTool"] if self._is_old else TOOLS + "ClusterTool"
        result = self._java.tool(name, ["cluster-id", "--bootstrap-server", self._bootstrap])
        assert "Cluster ID: " in result.output


ROWS: Final[dict[str, Callable[[Tools], None]]] = {
    name: method for name, method in vars(Tools).items() if not name.startswith("_")
}
"""The tools by name, in the order of the table."""


def table() -> str:
    """The second table of docs/clients.md: every tool is there in every version."""
    lines = [f"| tool | {' | '.join(VERSIONS)} |", "|---" * (len(VERSIONS) + 1) + "|"]
    lines += [f"| {method.__doc__} | {' | '.join(['yes'] * len(VERSIONS))} |" for method in ROWS.values()]
    return "\n".join(lines) + "\n"
