"""The settings of a server beyond those of its store, by their names in `server.properties`.

Types, defaults and ranges are those of Kafka 4.3.1, with these exceptions: `sasl.enabled.mechanisms` has no GSSAPI. The
backlog is 1024, not 50, with which clients that connect at the same time wait a second. Socket buffers are the
system's, which grow. Requests in memory are limited to 256 MiB, where a broker has no limit. Key stores are PEM files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from kafkalog.config.keys import MAX_INT, MAX_LONG, Check, Key, Kind, Table, at_least, between, one_of
from kafkalog.errors import ConfigError
from kafkalog.server.quorum.replica_set import parse_replicas

_DAY_MS: Final = 86_400_000
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SAME_NAMES: Final = tuple(f"{name}:{name}" for name in ("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"))
_PROTOCOLS_OF_GROUPS: Final = ("classic", "consumer", "share", "streams")
_KNOWN_GROUPS: Final = Check(
    f"classic, and others of {', '.join(_PROTOCOLS_OF_GROUPS)}",
    lambda value: "classic" in value and set(value) <= set(_PROTOCOLS_OF_GROUPS),
)
_ASSIGNORS: Final = Check("uniform, range, or both", lambda value: bool(value) and set(value) <= {"uniform", "range"})
_KNOWN_MECHANISMS: Final = Check(", ".join(MECHANISMS), lambda value: set(value) <= set(MECHANISMS))


def parse_overrides(items: Iterable[str]) -> dict[str, int]:
    """Return the limit of each address in `max.connections.per.ip.overrides`."""
    return {host: int(count) for host, _, count in (item.rpartition(":") for item in items)}


_POLICIES: Final = Check(
    "one of disabled, upgrade, downgrade, bidirectional",
    lambda value: value.lower() in ("disabled", "upgrade", "downgrade", "bidirectional"),
)


def _is_override(item: str) -> bool:
    host, _, count = item.rpartition(":")
    return bool(host) and re.fullmatch("[0-9]{1,10}", count) is not None and int(count) <= MAX_INT


_OVERRIDES: Final = Check("ADDRESS:COUNT, separated by commas", lambda value: all(map(_is_override, value)))


def _start(name: str, kind: Kind, default: object, check: Check | None, doc: str) -> Key:
    """Return the definition of a setting that is read only at the start."""
    return Key(name, kind, default, check, doc, dynamic=False)


_NETWORK: Final = (
    _start("advertised.listeners", "list", (), None, "addresses that clients connect to, by listener"),
    Key("connections.max.idle.ms", "long", 600_000, None, "an idle connection is closed after this time"),
    _start("kafkalog.queued.max.response.bytes", "long", 67_108_864, at_least(-1),
           "bytes of unread responses in memory; above it the oldest are dropped; -1: no limit"),
    _start("controller.listener.names", "list", (), None, "listeners of controllers, which are not opened"),
    Key("listener.security.protocol.map", "list", _SAME_NAMES, None, "NAME:PROTOCOL, such as INSIDE:SASL_SSL"),
    Key("listeners", "list", ("PLAINTEXT://localhost:9092",), None, "NAME://HOST:PORT of each listener"),
    Key("max.connections", "int", MAX_INT, at_least(0), "connections in all, or of a listener; more wait"),
    Key("max.connections.per.ip", "int", MAX_INT, at_least(0), "connections from one address; more are closed"),
    Key("max.connections.per.ip.overrides", "list", (), _OVERRIDES, "ADDRESS:COUNT for individual addresses"),
    Key("num.io.threads", "int", 8, at_least(1), "threads for the log's long calls"),
    Key("num.network.threads", "int", 3, at_least(1), "no effect: one thread serves all sockets"),
    _start("queued.max.request.bytes", "long", 268_435_456, None, "bytes of requests in memory at once; -1: no limit"),
    _start("queued.max.requests", "int", 500, at_least(1), "calls waiting for a thread; beyond this no socket is read"),
    _start("socket.listen.backlog.size", "int", 1024, at_least(1), "connections waiting to be accepted"),
    _start("socket.receive.buffer.bytes", "int", -1, at_least(-1), "SO_RCVBUF; -1: the system's"),
    _start("socket.request.max.bytes", "int", 104_857_600, at_least(1), "a larger request closes its connection"),
    _start("telemetry.max.bytes", "int", 1_048_576, at_least(1), "metrics of one push, for a server with a receiver"),
    _start("socket.send.buffer.bytes", "int", -1, at_least(-1), "SO_SNDBUF; -1: the system's"),
)  # fmt: skip

_TLS: Final = (
    Key("ssl.cipher.suites", "list", (), None, "cipher suites; none: OpenSSL's"),
    Key("ssl.client.auth", "string", "none", one_of("none", "requested", "required"), "certificates of clients"),
    Key("ssl.enabled.protocols", "list", ("TLSv1.2", "TLSv1.3"), None, "TLS versions"),
    Key("ssl.key.password", "string", None, None, "password of the private key"),
    Key("ssl.keystore.certificate.chain", "string", None, None, "the server's certificates, as PEM text"),
    Key("ssl.keystore.key", "string", None, None, "the private key, as PEM text"),
    Key("ssl.keystore.location", "string", None, None, "a PEM file with the private key and the certificates"),
    Key("ssl.keystore.password", "string", None, None, "not used with PEM"),
    Key("ssl.keystore.type", "string", "PEM", one_of("PEM"), "format of the key store"),
    _start("ssl.principal.mapping.rules", "string", "DEFAULT", None, "rules for a certificate's principal"),
    Key("ssl.protocol", "string", "TLSv1.3", None, "no effect: see ssl.enabled.protocols"),
    Key("ssl.truststore.certificates", "string", None, None, "trusted certificates, as PEM text"),
    Key("ssl.truststore.location", "string", None, None, "a PEM file with the trusted certificates"),
    Key("ssl.truststore.password", "string", None, None, "not used with PEM"),
    Key("ssl.truststore.type", "string", "PEM", one_of("PEM"), "format of the trust store"),
)

_SECURITY: Final = (
    _start("allow.everyone.if.no.acl.found", "bool", False, None, "everyone may use resources without ACLs"),
    _start("authorizer.class.name", "string", "", None, "any name: ACLs apply; none: everything is allowed"),
    _start("connection.failed.authentication.delay.ms", "int", 100, at_least(0), "delay of closing a rejected client"),
    _start("connections.max.reauth.ms", "long", 0, None, "lifetime of an authentication; 0: unlimited"),
    _start("quota.window.num", "int", 11, at_least(1), "number of samples of a rate"),
    _start("quota.window.size.seconds", "int", 1, at_least(1), "length of a sample"),
    Key("sasl.enabled.mechanisms", "list", MECHANISMS, _KNOWN_MECHANISMS, "authentication mechanisms"),
    _start("sasl.server.max.receive.size", "int", 524_288, at_least(1), "largest authentication message"),
    _start("inter.broker.listener.name", "string", None, None, "listener for other nodes"),
    Key("sasl.mechanism.inter.broker.protocol", "string", None, one_of(*MECHANISMS), "login at other nodes"),
    _start("security.inter.broker.protocol", "string", "PLAINTEXT", one_of(*PROTOCOLS), "protocol to other nodes"),
    _start("super.users", "string", "", None, "principals that may do everything, separated by semicolons"),
)

_CALLS: Final = (
    _start("auto.create.topics.enable", "bool", True, None, "an unknown topic is created when a client requests it"),
    _start("broker.rack", "string", None, None, "rack of this node"),
    _start("fetch.max.bytes", "int", 57_671_680, at_least(1024), "largest response to one fetch"),
    _start("fetch.purgatory.purge.interval.requests", "int", 1000, None, "removes finished fetches after so many"),
    _start("max.incremental.fetch.session.cache.slots", "int", 1000, at_least(0), "fetch sessions"),
    Key("follower.replication.throttled.rate", "long", MAX_LONG, at_least(0), "bytes/s of a follower that is behind"),
    Key("leader.replication.throttled.rate", "long", MAX_LONG, at_least(0), "bytes/s for followers that are behind"),
    Key("num.replica.fetchers", "int", 1, at_least(1), "no effect: one connection to the leader fetches all"),
    _start("max.request.partition.size.limit", "int", 2000, at_least(1), "partitions of one DescribeTopicPartitions"),
    _start("producer.purgatory.purge.interval.requests", "int", 1000, None, "as fetch.purgatory..., for produce"),
    _start("replica.fetch.backoff.ms", "int", 1000, at_least(0), "longest pause of a follower after an error"),
    _start("replica.fetch.max.bytes", "int", 1_048_576, at_least(0), "bytes of one partition in a follower's fetch"),
    _start("replica.fetch.min.bytes", "int", 1, None, "bytes that a follower's fetch waits for"),
    _start("replica.fetch.response.max.bytes", "int", 10_485_760, at_least(0), "bytes of a follower's fetch in all"),
    _start("replica.fetch.wait.max.ms", "int", 500, None, "longest wait of a follower's fetch at the leader"),
    _start("replica.socket.receive.buffer.bytes", "int", -1, at_least(-1), "SO_RCVBUF to the leader; -1: the system's"),
    _start("replica.socket.timeout.ms", "int", 30_000, None, "time for the leader to answer a follower's fetch"),
    _start("replica.lag.time.max.ms", "long", 30_000, None, "a follower that is behind for this time is out of sync"),
    _start("controlled.shutdown.enable", "bool", True, None, "a follower that stops first leaves the in-sync replicas"),
    _start("unstable.api.versions.enable", "bool", False, None, "no effect: only stable versions are served"),
)

_GROUPS: Final = (
    Key("errors.deadletterqueue.auto.create.topics.enable", "bool", False, None,
        "topics for share groups' dead letters are created"),
    Key("errors.deadletterqueue.topic.name.prefix", "string", "dlq.", None,
        "prefix of topics for share groups' dead letters"),
    _start("group.consumer.assignors", "list", ("uniform", "range"), _ASSIGNORS,
           "assignors of consumer groups, best first"),
    _start("group.consumer.heartbeat.interval.ms", "int", 5000, at_least(1), "heartbeat interval of consumer groups"),
    _start("group.consumer.max.heartbeat.interval.ms", "int", 15_000, at_least(1), "upper limit of a group's setting"),
    _start("group.consumer.max.session.timeout.ms", "int", 60_000, at_least(1), "upper limit of a group's setting"),
    _start("group.consumer.max.size", "int", MAX_INT, at_least(1), "members of a consumer group"),
    _start("group.consumer.migration.policy", "string", "bidirectional", _POLICIES,
           "ways in which a group with members may change: upgrade from the classic protocol, downgrade to it"),
    _start("group.consumer.min.heartbeat.interval.ms", "int", 5000, at_least(1), "lower limit of a group's setting"),
    _start("group.consumer.min.session.timeout.ms", "int", 45_000, at_least(1), "lower limit of a group's setting"),
    Key("group.consumer.regex.refresh.interval.ms", "int", 600_000, at_least(10_000), "no effect"),
    _start("group.consumer.session.timeout.ms", "int", 45_000, at_least(1), "a silent member is removed after this"),
    _start("group.coordinator.append.linger.ms", "int", -1, at_least(-1), "no effect: writes do not wait"),
    _start("group.coordinator.rebalance.protocols", "list", ("classic", "consumer"), _KNOWN_GROUPS,
           "supported protocols"),
    _start("group.coordinator.threads", "int", 4, at_least(1), "no effect: the loop's thread manages groups"),
    _start("group.initial.rebalance.delay.ms", "int", 3000, None, "time that a new group waits for more members"),
    _start("group.max.session.timeout.ms", "int", 1_800_000, None, "longest session of a classic member"),
    _start("group.max.size", "int", MAX_INT, at_least(1), "members of a classic group"),
    _start("group.min.session.timeout.ms", "int", 6000, None, "shortest session of a classic member"),
    _start("group.share.assignors", "list", ("simple",), None, "no effect: share groups have one assignor"),
    _start("group.share.delivery.count.limit", "int", 5, between(2, 10), "deliveries of a record to a share group"),
    _start("group.share.heartbeat.interval.ms", "int", 5000, at_least(1), "heartbeat interval of share groups"),
    _start("group.share.max.delivery.count.limit", "int", 10, between(5, 25), "upper limit of a group's setting"),
    _start("group.share.max.heartbeat.interval.ms", "int", 15_000, at_least(1), "upper limit of a group's setting"),
    _start("group.share.max.partition.max.record.locks", "int", 4000, between(2000, 10_000),
           "upper limit of a group's setting"),
    _start("group.share.max.record.lock.duration.ms", "int", 60_000, between(30_000, 3_600_000),
           "upper limit of a group's setting"),
    _start("group.share.max.session.timeout.ms", "int", 60_000, at_least(1), "upper limit of a group's setting"),
    _start("group.share.max.share.sessions", "int", 2000, at_least(1), "sessions of share consumers"),
    _start("group.share.max.size", "int", 200, between(1, 1000), "members of a share group"),
    _start("group.share.min.delivery.count.limit", "int", 2, between(2, 5), "lower limit of a group's setting"),
    _start("group.share.min.heartbeat.interval.ms", "int", 5000, at_least(1), "lower limit of a group's setting"),
    _start("group.share.min.partition.max.record.locks", "int", 100, between(100, 2000),
           "lower limit of a group's setting"),
    _start("group.share.min.record.lock.duration.ms", "int", 15_000, between(1000, 30_000),
           "lower limit of a group's setting"),
    _start("group.share.min.session.timeout.ms", "int", 45_000, at_least(1), "lower limit of a group's setting"),
    _start("group.share.partition.max.record.locks", "int", 2000, between(100, 10_000),
           "records of a partition that a share group may have in flight"),
    _start("group.share.record.lock.duration.ms", "int", 30_000, between(1000, 3_600_000),
           "time for which a share consumer has a record"),
    _start("group.share.session.timeout.ms", "int", 45_000, at_least(1), "a silent member is removed after this"),
    _start("offset.metadata.max.bytes", "int", 4096, None, "metadata of one offset"),
    _start("offsets.commit.timeout.ms", "int", 5000, at_least(1), "no effect: writes do not wait"),
    _start("offsets.load.buffer.size", "int", 5_242_880, at_least(1), "no effect: read while parsing"),
    _start("offsets.retention.check.interval.ms", "long", 600_000, at_least(1), "interval of removing expired offsets"),
    _start("offsets.retention.minutes", "int", 10_080, at_least(1), "retention of the offsets of an empty group"),
    _start("offsets.topic.compression.codec", "int", 0, between(0, 4), "codec of batches in __consumer_offsets"),
    _start("offsets.topic.num.partitions", "int", 50, at_least(1), "partitions of __consumer_offsets"),
    _start("offsets.topic.replication.factor", "int", 3, at_least(1), "no effect: one node has one copy"),
    _start("offsets.topic.segment.bytes", "int", 104_857_600, at_least(1), "segments of __consumer_offsets"),
    _start("share.coordinator.cold.partition.snapshot.interval.ms", "int", 300_000, at_least(1),
           "age at which the state of an idle share partition is stored again"),
    _start("share.coordinator.snapshot.update.records.per.snapshot", "int", 500, between(0, 500),
           "changes of a share partition's state between snapshots"),
    _start("share.coordinator.state.topic.min.isr", "int", 2, at_least(1),
           "min.insync.replicas of __share_group_state"),
    _start("share.coordinator.state.topic.num.partitions", "int", 50, at_least(1),
           "partitions of __share_group_state"),
    _start("share.coordinator.state.topic.prune.interval.ms", "int", 300_000, at_least(1),
           "interval of deleting old records of __share_group_state"),
    _start("share.coordinator.state.topic.replication.factor", "int", 3, at_least(1),
           "no effect: one node has one copy"),
    _start("share.coordinator.state.topic.segment.bytes", "int", 104_857_600, at_least(1),
           "segments of __share_group_state"),
)

_TRANSACTIONS: Final = (
    _start("transaction.abort.timed.out.transaction.cleanup.interval.ms", "int", 10_000, at_least(1),
           "interval of aborting transactions that timed out"),
    _start("transaction.max.timeout.ms", "int", 900_000, at_least(1), "longest transaction of a producer"),
    Key("transaction.partition.verification.enable", "bool", True, None, "produce requires an open transaction"),
    _start("transaction.remove.expired.transaction.cleanup.interval.ms", "int", 3_600_000, at_least(1),
           "interval of removing expired ids"),
    _start("transaction.state.log.load.buffer.size", "int", 5_242_880, at_least(1),
           "no effect: read while parsing"),
    _start("transaction.state.log.min.isr", "int", 2, at_least(1), "min.insync.replicas of __transaction_state"),
    _start("transaction.state.log.num.partitions", "int", 50, at_least(1), "partitions of __transaction_state"),
    _start("transaction.state.log.replication.factor", "int", 3, at_least(1), "no effect: one node has one copy"),
    _start("transaction.state.log.segment.bytes", "int", 104_857_600, at_least(1), "segments of __transaction_state"),
    _start("transaction.two.phase.commit.enable", "bool", False, None, "no effect: not supported"),
    _start("transactional.id.expiration.ms", "int", 7 * _DAY_MS, at_least(1), "an unused id expires after this time"),
)  # fmt: skip

_OWN: Final = (
    _start("kafkalog.handover.timeout.ms", "int", 10_000, between(1, 20_000), "time for the next leader to catch up"),
    _start("kafkalog.groups.members.max.bytes", "long", 67_108_864, at_least(0), "memory for members of groups"),
    _start("kafkalog.http.listener", "string", None, None, "HOST:PORT of metrics, health and status page; none: off"),
    _start("kafkalog.on.damage", "string", "recover", one_of("recover", "refuse"),
           "refuse: a partition that would lose sound records stays offline"),
    _start("kafkalog.replicas.jaas.config", "string", None, None, "login of this node at the other nodes"),
    _start("kafkalog.workers", "int", 1, between(1, 64), "processes, each with data directories and a port"),
    _start("kafkalog.replicas", "list", (), None, "ID@HOST:PORT of each node of the replica set; none: a single node"),
)

SERVER_CONFIGS: Final = (*_NETWORK, *_TLS, *_SECURITY, *_CALLS, *_GROUPS, *_TRANSACTIONS, *_OWN)
SERVER_TABLE: Final = Table(SERVER_CONFIGS, {}, "server setting", "kafkalog.server.settings.table.SERVER_CONFIGS")


_LIMITED: Final = (
    "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms", "group.share.delivery.count.limit",
    "group.share.heartbeat.interval.ms", "group.share.partition.max.record.locks",
    "group.share.record.lock.duration.ms", "group.share.session.timeout.ms",
)  # fmt: skip
"""Settings for groups without their own, each with limits for those of a group."""


def check_together(values: dict[str, Any]) -> None:
    """Raise ConfigError for settings that contradict each other."""

    def check_order(low: str, high: str) -> None:
        if values[low] > values[high]:
            hint = "lower it, or raise the other"
            raise ConfigError(f"{low}={values[low]} is above {high}={values[high]}", hint=hint)

    check_order("group.min.session.timeout.ms", "group.max.session.timeout.ms")
    for name in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):  # else healthy followers would count as late
        check_order("replica.fetch.wait.max.ms", name)
    for name in _LIMITED:
        group, kind, rest = name.split(".", 2)
        lowest, highest = f"{group}.{kind}.min.{rest}", f"{group}.{kind}.max.{rest}"
        check_order(lowest, name)
        check_order(name, highest)
    for kind in ("consumer", "share"):  # a member that keeps to the interval would be removed
        beat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        if values[beat] >= values[session]:
            raise ConfigError(f"{beat}={values[beat]} is not below {session}={values[session]}")
    parse_replicas(values["kafkalog.replicas"])
