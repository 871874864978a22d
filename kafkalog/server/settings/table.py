"""The settings of a server beyond those of its store, by their names in `server.properties`.

Types, defaults and ranges are those of Kafka 4.3.1, with these exceptions: `sasl.enabled.mechanisms` has no GSSAPI. The
backlog is 1024, not 50, with which clients that connect at the same time wait a second. Socket buffers are the
system's, which grow. Requests in memory are limited to 256 MiB, where a broker has no limit. Key stores are PEM files.
"""

from __future__ import annotations

from typing import Any, Final

from kafkalog.config.keys import MAX_INT, MAX_LONG, Check, Key, Kind, Table, at_least, between, one_of
from kafkalog.errors import ConfigError
from kafkalog.server.quorum.replica_set import parse_replicas

_DAY_MS: Final = 86_400_000
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_KNOWN_MECHANISMS: Final = Check(", ".join(MECHANISMS), lambda value: set(value) <= set(MECHANISMS))


def _start(name: str, kind: Kind, default: object, check: Check | None, doc: str) -> Key:
    """Return the definition of a setting that is read only at the start."""
    return Key(name, kind, default, check, doc, dynamic=False)


_NETWORK: Final = (
    Key("advertised.listeners", "list", (), None, "what clients are told to connect to, by listener"),
    Key("connections.max.idle.ms", "long", 600_000, None, "a connection on which nothing happens is closed after that"),
    _start("kafkalog.queued.max.response.bytes", "long", 67_108_864, at_least(-1),
           "answers in memory that clients do not take; with more the oldest are given up; -1: no limit"),
    _start("controller.listener.names", "list", (), None, "listeners of a quorum of controllers: they are not opened"),
    Key("listener.security.protocol.map", "list", (), None, "NAME:PROTOCOL, such as INSIDE:SASL_SSL"),
    Key("listeners", "list", ("PLAINTEXT://localhost:9092",), None, "NAME://HOST:PORT of each listener"),
    Key("max.connections", "int", MAX_INT, at_least(0), "connections in all, or of a listener; more wait to be taken"),
    Key("max.connections.per.ip", "int", MAX_INT, at_least(0), "connections of one address; more are closed"),
    Key("max.connections.per.ip.overrides", "list", (), None, "ADDRESS:COUNT for single addresses"),
    Key("num.io.threads", "int", 8, at_least(1), "threads for the log's long calls"),
    Key("num.network.threads", "int", 3, at_least(1), "without effect: one thread serves all sockets"),
    _start("queued.max.request.bytes", "long", 268_435_456, None, "requests in memory at once, as bytes; -1: no limit"),
    _start("queued.max.requests", "int", 500, at_least(1), "calls that wait for a thread; with more no socket is read"),
    _start("socket.listen.backlog.size", "int", 1024, at_least(1), "connections that wait to be accepted"),
    _start("socket.receive.buffer.bytes", "int", -1, at_least(-1), "SO_RCVBUF; -1: the system's"),
    _start("socket.request.max.bytes", "int", 104_857_600, at_least(1), "a larger request closes its connection"),
    _start("socket.send.buffer.bytes", "int", -1, at_least(-1), "SO_SNDBUF; -1: the system's"),
)  # fmt: skip

_TLS: Final = (
    Key("ssl.cipher.suites", "list", (), None, "cipher suites; none: OpenSSL's"),
    Key("ssl.client.auth", "string", "none", one_of("none", "requested", "required"), "certificates of clients"),
    Key("ssl.enabled.protocols", "list", ("TLSv1.2", "TLSv1.3"), None, "versions of TLS"),
    Key("ssl.key.password", "string", None, None, "password of the private key"),
    Key("ssl.keystore.certificate.chain", "string", None, None, "the server's certificates, as PEM text"),
    Key("ssl.keystore.key", "string", None, None, "the private key, as PEM text"),
    Key("ssl.keystore.location", "string", None, None, "a PEM file with the private key and the certificates"),
    Key("ssl.keystore.password", "string", None, None, "not used with PEM"),
    Key("ssl.keystore.type", "string", "PEM", one_of("PEM"), "form of the key store"),
    Key("ssl.principal.mapping.rules", "string", "DEFAULT", None, "principal of a certificate's name"),
    Key("ssl.protocol", "string", "TLSv1.3", None, "without effect: see ssl.enabled.protocols"),
    Key("ssl.truststore.certificates", "string", None, None, "certificates that are trusted, as PEM text"),
    Key("ssl.truststore.location", "string", None, None, "a PEM file with the certificates that are trusted"),
    Key("ssl.truststore.password", "string", None, None, "not used with PEM"),
    Key("ssl.truststore.type", "string", "PEM", one_of("PEM"), "form of the trust store"),
)

_SECURITY: Final = (
    _start("allow.everyone.if.no.acl.found", "bool", False, None, "what no ACL names is open to everyone"),
    _start("authorizer.class.name", "string", "", None, "any name: ACLs are asked; none: everything is allowed"),
    _start("connection.failed.authentication.delay.ms", "int", 100, at_least(0), "a refused client is closed so late"),
    _start("connections.max.reauth.ms", "long", 0, None, "how long an authentication holds; 0: for ever"),
    Key("quota.window.num", "int", 11, at_least(1), "samples of a rate that are kept"),
    Key("quota.window.size.seconds", "int", 1, at_least(1), "length of a sample"),
    _start("sasl.enabled.mechanisms", "list", MECHANISMS, _KNOWN_MECHANISMS, "ways to authenticate"),
    _start("sasl.server.max.receive.size", "int", 524_288, at_least(1), "largest message of an authentication"),
    _start("inter.broker.listener.name", "string", None, None, "a listener: other nodes have its protocol"),
    _start("sasl.mechanism.inter.broker.protocol", "string", None, one_of(*MECHANISMS), "login at other nodes"),
    _start("security.inter.broker.protocol", "string", "PLAINTEXT", one_of(*_PROTOCOLS), "protocol of other nodes"),
    _start("super.users", "string", "", None, "principals that may do everything, joined by semicolons"),
)

_CALLS: Final = (
    _start("auto.create.topics.enable", "bool", True, None, "an unknown topic is made when it is asked for"),
    _start("broker.rack", "string", None, None, "rack of this node"),
    _start("fetch.max.bytes", "int", 57_671_680, at_least(1024), "the most that one fetch gets"),
    _start("fetch.purgatory.purge.interval.requests", "int", 1000, None, "done fetches are swept after so many"),
    _start("max.incremental.fetch.session.cache.slots", "int", 1000, at_least(0), "fetch sessions"),
    Key("follower.replication.throttled.rate", "long", MAX_LONG, at_least(0), "bytes/s that a follower fetches late"),
    Key("leader.replication.throttled.rate", "long", MAX_LONG, at_least(0), "bytes/s for followers that are behind"),
    Key("num.replica.fetchers", "int", 1, at_least(1), "without effect: one connection to the leader fetches all"),
    _start("max.request.partition.size.limit", "int", 2000, at_least(1), "partitions of one DescribeTopicPartitions"),
    _start("producer.purgatory.purge.interval.requests", "int", 1000, None, "as fetch.purgatory..., for produce"),
    _start("replica.fetch.backoff.ms", "int", 1000, at_least(0), "longest pause of a follower after a failure"),
    _start("replica.fetch.max.bytes", "int", 1_048_576, at_least(0), "of one partition in a follower's fetch"),
    _start("replica.fetch.min.bytes", "int", 1, None, "a follower's fetch waits for so much"),
    _start("replica.fetch.response.max.bytes", "int", 10_485_760, at_least(0), "of a follower's fetch in all"),
    _start("replica.fetch.wait.max.ms", "int", 500, None, "a follower's fetch waits at the leader at most so long"),
    _start("replica.socket.receive.buffer.bytes", "int", -1, at_least(-1), "SO_RCVBUF to the leader; -1: the system's"),
    _start("replica.socket.timeout.ms", "int", 30_000, None, "the leader has so long to answer a follower's fetch"),
    _start("replica.lag.time.max.ms", "long", 30_000, None, "a follower that is behind for so long is out of sync"),
    _start("unstable.api.versions.enable", "bool", False, None, "without effect: only stable versions are served"),
)

_GROUPS: Final = (
    _start("group.consumer.assignors", "list", ("uniform", "range"), None, "assignors of consumer groups, best first"),
    _start("group.consumer.heartbeat.interval.ms", "int", 5000, at_least(1), "heartbeats of consumer groups"),
    _start("group.consumer.max.heartbeat.interval.ms", "int", 15_000, at_least(1), "what a group may set at most"),
    _start("group.consumer.max.session.timeout.ms", "int", 60_000, at_least(1), "what a group may set at most"),
    _start("group.consumer.max.size", "int", MAX_INT, at_least(1), "members of a consumer group"),
    Key("group.consumer.migration.policy", "string", "bidirectional", None, "without effect: only empty groups change"),
    _start("group.consumer.min.heartbeat.interval.ms", "int", 5000, at_least(1), "what a group may set at least"),
    _start("group.consumer.min.session.timeout.ms", "int", 45_000, at_least(1), "what a group may set at least"),
    Key("group.consumer.regex.refresh.interval.ms", "int", 600_000, at_least(10_000), "without effect"),
    _start("group.consumer.session.timeout.ms", "int", 45_000, at_least(1), "a silent member is out after so long"),
    _start("group.coordinator.append.linger.ms", "int", -1, at_least(-1), "without effect: writes do not wait"),
    _start("group.coordinator.rebalance.protocols", "list", ("classic", "consumer"), None, "protocols that are served"),
    _start("group.coordinator.threads", "int", 4, at_least(1), "without effect: groups are kept by the loop's thread"),
    _start("group.initial.rebalance.delay.ms", "int", 3000, None, "a new group waits so long for more members"),
    _start("group.max.session.timeout.ms", "int", 1_800_000, None, "longest session of a classic member"),
    _start("group.max.size", "int", MAX_INT, at_least(1), "members of a classic group"),
    _start("group.min.session.timeout.ms", "int", 6000, None, "shortest session of a classic member"),
    _start("offset.metadata.max.bytes", "int", 4096, None, "metadata of one offset"),
    _start("offsets.commit.timeout.ms", "int", 5000, at_least(1), "without effect: writes do not wait"),
    _start("offsets.load.buffer.size", "int", 5_242_880, at_least(1), "without effect: read as it is parsed"),
    _start("offsets.retention.check.interval.ms", "long", 600_000, at_least(1), "period: offsets expire"),
    _start("offsets.retention.minutes", "int", 10_080, at_least(1), "offsets of an empty group are kept so long"),
    _start("offsets.topic.compression.codec", "int", 0, between(0, 4), "codec of the batches of groups"),
    _start("offsets.topic.num.partitions", "int", 50, at_least(1), "partitions of __consumer_offsets"),
    _start("offsets.topic.replication.factor", "int", 3, at_least(1), "without effect: one node has one copy"),
    _start("offsets.topic.segment.bytes", "int", 104_857_600, at_least(1), "segments of __consumer_offsets"),
)

_TRANSACTIONS: Final = (
    _start("transaction.abort.timed.out.transaction.cleanup.interval.ms", "int", 10_000, at_least(1),
           "period: transactions that took too long are aborted"),
    _start("transaction.max.timeout.ms", "int", 900_000, at_least(1), "longest transaction a producer may ask for"),
    Key("transaction.partition.verification.enable", "bool", True, None, "a produce needs its transaction"),
    _start("transaction.remove.expired.transaction.cleanup.interval.ms", "int", 3_600_000, at_least(1),
           "period: ids that expired are forgotten"),
    _start("transaction.state.log.load.buffer.size", "int", 5_242_880, at_least(1),
           "without effect: read as it is parsed"),
    _start("transaction.state.log.min.isr", "int", 2, at_least(1), "min.insync.replicas of __transaction_state"),
    _start("transaction.state.log.num.partitions", "int", 50, at_least(1), "partitions of __transaction_state"),
    _start("transaction.state.log.replication.factor", "int", 3, at_least(1), "without effect: one node has one copy"),
    _start("transaction.state.log.segment.bytes", "int", 104_857_600, at_least(1), "segments of __transaction_state"),
    _start("transaction.two.phase.commit.enable", "bool", False, None, "without effect: not served"),
    _start("transactional.id.expiration.ms", "int", 7 * _DAY_MS, at_least(1), "an unused id is forgotten after that"),
)  # fmt: skip

_OWN: Final = (
    _start("kafkalog.handover.timeout.ms", "int", 10_000, between(1, 20_000), "the next leader catches up within that"),
    _start("kafkalog.groups.members.max.bytes", "long", 67_108_864, at_least(0), "memory for members of groups"),
    _start("kafkalog.http.listener", "string", None, None, "HOST:PORT of metrics, health and status page; none: off"),
    _start("kafkalog.on.damage", "string", "recover", one_of("recover", "refuse"),
           "refuse: no partition is opened that would lose sound records; it is offline"),
    _start("kafkalog.replicas.jaas.config", "string", None, None, "the login of this node at the others"),
    _start("kafkalog.replicas", "list", (), None, "ID@HOST:PORT of each node that has copies; none: this one is alone"),
)

SERVER_CONFIGS: Final = (*_NETWORK, *_TLS, *_SECURITY, *_CALLS, *_GROUPS, *_TRANSACTIONS, *_OWN)
SERVER_TABLE: Final = Table(SERVER_CONFIGS, {}, "setting of a server", "kafkalog.server.settings.table.SERVER_CONFIGS")


def check_together(values: dict[str, Any]) -> None:
    """Raise ConfigError for settings that contradict each other."""
    if values["group.min.session.timeout.ms"] > values["group.max.session.timeout.ms"]:
        least = values["group.min.session.timeout.ms"]
        raise ConfigError(f"group.min.session.timeout.ms={least} is above group.max.session.timeout.ms")
    wait_ms = values["replica.fetch.wait.max.ms"]
    for name in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):  # else healthy followers would count as late
        if wait_ms > values[name]:
            raise ConfigError(f"replica.fetch.wait.max.ms={wait_ms} is above {name}={values[name]}")
    parse_replicas(values["kafkalog.replicas"])
