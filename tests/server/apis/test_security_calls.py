"""Calls about ACLs, quotas and users, and authentication (KIP-11, KIP-43, KIP-152, KIP-368, KIP-546, KIP-554)."""

import asyncio
from pathlib import Path
from threading import get_ident
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog.errors import ConfigError
from kafkalog.server.node.node import Node
from kafkalog.server.requests.context import Connection
from kafkalog.server.security import file, sasl
from kafkalog.server.security.acls import Acl, AclFilter, Operation, ResourceType
from kafkalog.server.security.scram import salted_password
from kafkalog.server.security.state import SecurityState
from kafkalog.server.security.users import add_user
from kafkalog.server.serving import serving
from kafkalog.server.settings.config import ServerConfig
from tests.server.apis.test_topic_calls import allow, create, metadata_tree, with_node
from tests.server.nodes import SMALL, Closed, call, connection_for, request_bytes
from tests.server.security.test_users import Client

ACLS = {"authorizer_class_name": "StandardAuthorizer", "allow_everyone_if_no_acl_found": True}


def acl_creation(**changes: Any) -> dict[str, Any]:
    return {
        "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:u", "host": "*",
        "operation": 3, "permission_type": 3, **changes,
    }  # fmt: skip


def acl_filter(**changes: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": 2, "resource_name_filter": "t", "pattern_type_filter": 3, "principal_filter": None,
        "host_filter": None, "operation": 1, "permission_type": 1, **changes,
    }  # fmt: skip


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_made_told_and_deleted(tmp_path: Path, version: int) -> None:
    async def use(node: Node) -> None:
        write = acl_creation(operation=4, permission_type=2)
        rows = [acl_creation(), acl_creation(), write, acl_creation(resource_name="other")]
        answer = await call(node, "create_acls", version, {"creations": rows})
        assert [(row.error_code, row.error_message) for row in answer.results] == [(0, "")] * 4
        answer = await call(node, "describe_acls", version, acl_filter())
        (resource,) = answer.resources
        assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (2, "t", 3)
        assert [(one.principal, one.operation, one.permission_type) for one in resource.acls] == [
            ("User:u", 3, 3), ("User:u", 4, 2),
        ]  # fmt: skip
        filters = [acl_filter(operation=4), acl_filter(), acl_filter(resource_name_filter="nope")]
        answer = await call(node, "delete_acls", version, {"filters": filters})
        assert [len(row.matching_acls) for row in answer.filter_results] == [1, 1, 0]
        assert [acl.resource_name for acl in node.credentials.file.state.acls] == ["other"]

    with_node(tmp_path, use, **ACLS)


def test_many_acls_are_deleted_by_many_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters are tried only on ACLs that may have their name, and not in the loop's thread."""
    tried: list[int] = []
    matches = AclFilter.matches

    def counted(self: AclFilter, acl: Acl) -> bool:
        tried.append(get_ident())
        return matches(self, acl)

    async def use(node: Node) -> None:
        names = [f"t{number}" for number in range(100)]
        await call(node, "create_acls", 3, {"creations": [acl_creation(resource_name=name) for name in names]})
        filters = [acl_filter(resource_name_filter=name, operation=4) for name in names]  # which match none
        filters += [acl_filter(resource_name_filter=name) for name in reversed(names)]
        filters.insert(150, acl_filter(resource_name_filter="t7", pattern_type_filter=2))  # any pattern of t7
        filters.insert(50, acl_filter(resource_name_filter=None, operation=99))  # invalid: matches none
        answer = await call(node, "delete_acls", 3, {"filters": filters})
        found = {row: one.matching_acls[0].resource_name for row, one in enumerate(answer.filter_results)
                 if one.matching_acls}  # fmt: skip
        expected = dict(zip(range(101, 151), reversed(names[50:]), strict=True)) | {151: "t7"}
        expected |= dict(zip(range(152, 202), reversed(names[:50]), strict=True))
        del expected[194]  # t7 went to the filter before it
        assert found == expected and not node.credentials.file.state.acls
        assert len(tried) <= 300 and get_ident() not in tried

    monkeypatch.setattr(AclFilter, "matches", counted)
    with_node(tmp_path, use, **ACLS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "not a valid ResourceType"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        ({"resource_name": ""}, "Resource name should not be empty"),
        ({"host": "10.0.0.0/33"}, "Invalid CIDR notation '10.0.0.0/33'"),
        ({"host": "10.0.0.0/255.0.0.0"}, "Invalid CIDR notation"),
        ({"host": "::1%eth0/64"}, "Invalid CIDR notation"),
        ({"principal": "u"}, "Could not parse principal from `u`"),
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
    ],
)
def test_acls_that_are_none(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    async def use(node: Node) -> None:
        answer = await call(node, "create_acls", 3, {"creations": [acl_creation(**changes), acl_creation()]})
        assert [row.error_code for row in answer.results] == [42, 0] and words in answer.results[0].error_message
        assert len(node.credentials.file.state.acls) == 1

    with_node(tmp_path, use, **ACLS)


def test_acls_quotas_and_users_that_the_next_start_could_not_read_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "MAX_FILE_BYTES", 4096)

    async def use(node: Node) -> None:
        rows = [acl_creation(resource_name=f"{number}-{'t' * 200}") for number in range(20)]
        answer = await call(node, "create_acls", 3, {"creations": rows})
        assert {row.error_code for row in answer.results} == {44}
        entity = [{"entity_type": "client-id", "entity_name": "c" * 5000}]
        limit = [{"key": "producer_byte_rate", "value": 5.0, "remove": False}]
        entries = {"entries": [{"entity": entity, "ops": limit}], "validate_only": False}
        assert (await call(node, "alter_client_quotas", 1, entries)).entries[0].error_code == 44
        user = {"name": "u" * 5000, "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
        users = {"deletions": [], "upsertions": [user]}
        assert (await call(node, "alter_user_scram_credentials", 0, users)).results[0].error_code == 44
        assert node.credentials.file.state == SecurityState()
        answer = await call(node, "create_acls", 3, {"creations": [acl_creation()]})
        assert answer.results[0].error_code == 0

    async def after(node: Node) -> None:
        assert [acl.resource_name for acl in node.credentials.file.state.acls] == ["t"]

    with_node(tmp_path, use, **ACLS)
    with_node(tmp_path, after, **ACLS)


def test_without_an_authorizer_there_are_no_acls(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        answer = await call(node, "create_acls", 3, {"creations": [acl_creation()]})
        assert [row.error_code for row in answer.results] == [54]
        assert (await call(node, "describe_acls", 3, acl_filter())).error_code == 54
        answer = await call(node, "delete_acls", 3, {"filters": [acl_filter()]})
        assert [row.error_code for row in answer.filter_results] == [54]

    with_node(tmp_path, use)


def test_only_who_may_alter_the_cluster_changes_its_security(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        user = connection_for("User:u")
        answer = await call(node, "create_acls", 3, {"creations": [acl_creation()]}, connection=user)
        assert [row.error_code for row in answer.results] == [31]
        assert (await call(node, "describe_acls", 3, acl_filter(), connection=user)).error_code == 31
        answer = await call(node, "alter_client_quotas", 1, quota_change(("user", "u")), connection=user)
        assert [row.error_code for row in answer.entries] == [31]
        tree: dict[str, Any] = {"components": (), "strict": False}
        assert (await call(node, "describe_client_quotas", 1, tree, connection=user)).error_code == 31
        tree = {"deletions": [{"name": "u", "mechanism": 1}], "upsertions": ()}
        answer = await call(node, "alter_user_scram_credentials", 0, tree, connection=user)
        assert [row.error_code for row in answer.results] == [31]
        answer = await call(node, "describe_user_scram_credentials", 0, {"users": None}, connection=user)
        assert answer.error_code == 31
        acls = (allow("kafka-cluster", Operation.DESCRIBE, kind=ResourceType.CLUSTER),)
        await node.credentials.file.change(node.run, lambda state: state._replace(acls=acls))
        assert (await call(node, "describe_acls", 3, acl_filter(), connection=user)).error_code == 0

    with_node(tmp_path, use, authorizer_class_name="StandardAuthorizer", super_users="User:root")


def quota_change(
    *entity: tuple[str, str | None], key: str = "producer_byte_rate", value: float = 1000.0, **more: Any
) -> Any:
    op = {"key": key, "value": value, "remove": more.pop("remove", False)}
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
    return {"entries": [{"entity": parts, "ops": [op]}], "validate_only": False, **more}


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_told_and_taken_away(tmp_path: Path, version: int) -> None:
    async def use(node: Node) -> None:
        async def alter(*entity: tuple[str, str | None], **more: Any) -> tuple[int, str | None]:
            (row,) = (await call(node, "alter_client_quotas", version, quota_change(*entity, **more))).entries
            return row.error_code, row.error_message

        async def found(*components: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
            rows = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in components]
            answer = await call(node, "describe_client_quotas", version, {"components": rows, "strict": strict})
            assert answer.error_code == 0
            return [{part.entity_type: part.entity_name for part in entry.entity} for entry in answer.entries]

        assert await alter(("user", "u")) == (0, None)
        assert await alter(("user", None)) == (0, None)
        assert await alter(("client-id", "c"), ("user", "u"), key="request_percentage", value=12.5) == (0, None)
        assert await alter(("user", "u"), validate_only=True, value=5.0) == (0, None)
        assert len(await found()) == 3
        assert await found(("user", 0, "u")) == [{"user": "u"}, {"client-id": "c", "user": "u"}]
        assert await found(("user", 0, "u"), strict=True) == [{"user": "u"}]
        assert await found(("user", 1, None)) == [{"user": None}]
        assert await found(("client-id", 2, None)) == [{"client-id": "c", "user": "u"}]
        assert node.credentials.file.state.quotas[("user", "u"),] == {"producer_byte_rate": 1000.0}
        assert await alter(("user", "u"), remove=True) == (0, None)
        assert len(await found()) == 2
        for entity, more in (
            ((), {}), ((("user", ""),), {}), ((("group", "g"),), {}), ((("ip", "::1"), ("user", "u")), {}),
            ((("user", "u"),), {"key": "no_such"}), ((("user", "u"),), {"value": 0.0}),
            ((("user", "u"),), {"value": 1.5}), ((("user", "u"),), {"value": float("nan")}),
        ):  # fmt: skip
            assert (await alter(*entity, **more))[0] == 42
        wrong = ((("x", 0, "y"), 35), (("", 0, "y"), 42), (("user", 0, None), 42), (("user", 9, None), 42))
        for component, code in wrong:
            row = dict(zip(("entity_type", "match_type", "match"), component, strict=True))
            answer = await call(node, "describe_client_quotas", version, {"components": [row], "strict": False})
            assert answer.error_code == code and answer.entries is None

    with_node(tmp_path, use)


def test_users_get_passwords_and_lose_them(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        def upsertion(name: str, mechanism: int = 1, iterations: int = 4096) -> dict[str, Any]:
            salted = salted_password("SCRAM-SHA-256", "pw", b"salt", 4096)
            fields = {"salt": b"salt", "salted_password": salted}
            return {"name": name, "mechanism": mechanism, "iterations": iterations, **fields}

        async def alter(deletions: Any = (), upsertions: Any = ()) -> dict[str, int]:
            gone = [{"name": name, "mechanism": one} for name, one in deletions]
            tree = {"deletions": gone, "upsertions": upsertions}
            answer = await call(node, "alter_user_scram_credentials", 0, tree)
            return {row.user: row.error_code for row in answer.results}

        rows = [upsertion("a"), upsertion("b"), upsertion("", 1), upsertion("few", iterations=4095)]
        rows += [upsertion("many", iterations=16_385), upsertion("odd", 3), upsertion("twice"), upsertion("twice")]
        expected = {"a": 0, "b": 0, "": 93, "few": 93, "many": 93, "odd": 33, "twice": 92}
        assert await alter(upsertions=rows) == expected
        assert await node.credentials.is_password("a", "pw") and not await node.credentials.is_password("a", "no")
        answer = await call(node, "describe_user_scram_credentials", 0, {"users": None})
        found = {row.user: [(one.mechanism, one.iterations) for one in row.credential_infos] for row in answer.results}
        assert found == {"a": [(1, 4096)], "b": [(1, 4096)]}
        tree = {"users": [{"name": "a"}, {"name": "nobody"}, {"name": "b"}, {"name": "b"}]}
        answer = await call(node, "describe_user_scram_credentials", 0, tree)
        assert {row.user: row.error_code for row in answer.results} == {"a": 0, "nobody": 91, "b": 92}
        assert await alter(deletions=[("a", 1), ("b", 2)]) == {"a": 0, "b": 91}
        assert list(node.credentials.file.state.users) == ["b"]

    with_node(tmp_path, use)


def sasl_connection() -> Connection:
    return connection_for(security_protocol="SASL_PLAINTEXT")


async def send_handshake(node: Node, connection: Connection, mechanism: str, version: int = 1) -> int:
    answer = await call(node, "sasl_handshake", version, {"mechanism": mechanism}, connection=connection)
    return int(answer.error_code)


async def send_token(node: Node, connection: Connection, data: bytes, version: int = 2) -> Any:
    return await call(node, "sasl_authenticate", version, {"auth_bytes": data}, connection=connection)


async def log_in(node: Node, connection: Connection, mechanism: str, user: str, password: str) -> Any:
    assert await send_handshake(node, connection, mechanism) == 0
    if mechanism == "PLAIN":
        return await send_token(node, connection, f"\0{user}\0{password}".encode())
    client = Client(mechanism, user, password)
    first = await send_token(node, connection, client.first())
    assert first.error_code == 0 and not connection.is_authenticated
    last = await send_token(node, connection, client.last(bytes(first.auth_bytes)))
    assert last.error_code != 0 or last.auth_bytes == client.expected
    return last


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_has_the_password_is_let_in_and_nobody_else(tmp_path: Path, mechanism: str) -> None:
    add_user(tmp_path, "u", "secret")

    async def use(node: Node) -> None:
        connection = sasl_connection()
        with pytest.raises(Closed):
            await call(node, "metadata", 12, metadata_tree(), connection=connection)
        answer = await log_in(node, connection, mechanism, "u", "secret")
        assert (answer.error_code, answer.error_message, answer.session_lifetime) == (0, None, 0)
        assert connection.principal == "User:u" and not connection.closes_after_answer
        assert (await call(node, "metadata", 12, metadata_tree(), connection=connection)).topics == ()
        assert await send_handshake(node, connection, mechanism) == 34
        assert (await send_token(node, connection, b"x")).error_code == 34
        for user, password in (("u", "wrong"), ("v", "secret")):
            connection = sasl_connection()
            answer = await log_in(node, connection, mechanism, user, password)
            assert answer.error_code == 58 and "Authentication failed" in answer.error_message
            assert connection.closes_after_answer and not connection.is_authenticated
            assert connection.principal == "User:ANONYMOUS"
        assert node.metrics.network.refused["authentication"] == 2

    with_node(tmp_path, use, connection_failed_authentication_delay_ms=1)


def test_strangers_do_not_fill_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first failure of each kind is a warning; all are counted, and logged at debug level."""
    add_user(tmp_path, "u", "secret")

    async def use(node: Node) -> None:
        for number in range(5):
            for mechanism in ("PLAIN", "SCRAM-SHA-256"):
                answer = await log_in(node, sasl_connection(), mechanism, f"stranger{number}", "x")
                assert answer.error_code == 58
            connection = sasl_connection()
            with pytest.raises(Closed):
                await send_token(node, connection, b"x")
            assert await send_handshake(node, connection, "PLAIN") == 0
            with pytest.raises(Closed):
                await send_handshake(node, connection, f"{number}")
        assert node.metrics.network.refused["authentication"] == 10

    caplog.set_level("DEBUG", "kafkalog.server.security.sasl")
    with_node(tmp_path, use, connection_failed_authentication_delay_ms=1)
    found = [one for one in caplog.records if "failed to authenticate" in one.message]
    assert len(found) == 20
    warnings = [one.message for one in found if one.levelname == "WARNING"]
    assert len(warnings) == 3 and all("further failures are counted" in one for one in warnings)
    assert "by PLAIN: wrong password for 'stranger0'" in warnings[0] and "by SCRAM-SHA-256" in warnings[1]


def test_users_of_plain_may_stand_in_the_settings(tmp_path: Path) -> None:
    add_user(tmp_path, "kept", "secret", mechanisms=["SCRAM-SHA-256"])
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    text = f'{module} username="x" password="y" user_u="a \\"b" user_kept="other" ;'

    async def use(node: Node) -> None:
        for user, password, code in (
            ("u", 'a "b', 0), ("u", "a", 58), ("kept", "other", 0), ("kept", "secret", 58), ("x", "y", 58),
        ):  # fmt: skip
            assert (await log_in(node, sasl_connection(), "PLAIN", user, password)).error_code == code

    settings = {"listener_name_plaintext_plain_sasl_jaas_config": text}
    with_node(tmp_path, use, connection_failed_authentication_delay_ms=0, **settings)


@pytest.mark.parametrize("text", ["x", "M required", 'M required user_a="b"', 'M required user_a="b" c ;', "M needed;"])
def test_settings_that_name_no_users_end_the_start(tmp_path: Path, text: str) -> None:
    async def never(node: Node) -> None:
        raise AssertionError

    with pytest.raises(ConfigError, match="PlainLoginModule required"):
        with_node(tmp_path, never, listener_name_plaintext_plain_sasl_jaas_config=text)


def test_a_client_that_fails_waits(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        connection = sasl_connection()
        assert await send_handshake(node, connection, "PLAIN") == 0
        answer = asyncio.ensure_future(send_token(node, connection, b"\0u\0p"))
        done, _ = await asyncio.wait([answer], timeout=0.2)
        assert not done
        answer.cancel()

    with_node(tmp_path, use, connection_failed_authentication_delay_ms=60_000)


def test_the_time_of_a_failure_does_not_tell_who_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = 0.0

    async def use(node: Node) -> None:
        async def sleep(seconds: float) -> None:
            nonlocal now_ms
            now_ms += 1000 * seconds

        async def is_password(user: str, password: str) -> bool:
            await sleep(0.15 if user == "known" else 0)
            return False

        monkeypatch.setattr(sasl, "asyncio", SimpleNamespace(sleep=sleep))
        node.monotonic_ms = lambda: int(now_ms)
        monkeypatch.setattr(node.credentials, "is_password", is_password)
        for user in ("known", "nobody"):
            began_ms = now_ms
            assert (await log_in(node, sasl_connection(), "PLAIN", user, "p")).error_code == 58
            assert now_ms - began_ms == pytest.approx(300)

    with_node(tmp_path, use, connection_failed_authentication_delay_ms=300)


@pytest.mark.parametrize(
    "data", [b"", b"u\0p", b"\0u\0", b"\0\0p", b"\0u\0p\0x", b"\xff\0\0", b"v\0u\0secret", b"\0" * 999]
)
def test_messages_that_are_none_of_plain(tmp_path: Path, data: bytes) -> None:
    add_user(tmp_path, "u", "secret", mechanisms=["SCRAM-SHA-256"])

    async def use(node: Node) -> None:
        connection = sasl_connection()
        assert await send_handshake(node, connection, "PLAIN") == 0
        assert (await send_token(node, connection, data)).error_code == 58 and not connection.is_authenticated

    with_node(tmp_path, use, connection_failed_authentication_delay_ms=0, sasl_server_max_receive_size=500)


def test_handshakes_that_lead_nowhere(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        plain = connection_for()
        for version in (0, 1):
            answer = await call(node, "sasl_handshake", version, {"mechanism": "PLAIN"}, connection=plain)
            assert (answer.error_code, answer.mechanisms) == (34, ())
        connection = sasl_connection()
        answer = await call(node, "sasl_handshake", 1, {"mechanism": "GSSAPI"}, connection=connection)
        assert (answer.error_code, answer.mechanisms) == (33, ("SCRAM-SHA-256",)) and connection.closes_after_answer
        assert await send_handshake(node, sasl_connection(), "PLAIN") == 33
        connection = sasl_connection()
        assert await send_handshake(node, connection, "SCRAM-SHA-256") == 0
        with pytest.raises(Closed):
            await send_handshake(node, connection, "SCRAM-SHA-256")
        with pytest.raises(Closed):
            await send_token(node, sasl_connection(), b"x")

    with_node(tmp_path, use, sasl_enabled_mechanisms="SCRAM-SHA-256")


def test_an_authentication_that_ends_is_done_again_by_the_same_user(tmp_path: Path) -> None:
    """KIP-368."""
    for user in ("u", "v"):
        add_user(tmp_path, user, "secret", mechanisms=["SCRAM-SHA-256"])

    async def use(node: Node) -> None:
        connection = sasl_connection()
        answer = await log_in(node, connection, "PLAIN", "u", "secret")
        assert answer.session_lifetime == 60_000
        with pytest.raises(Closed):  # within a second
            await send_handshake(node, connection, "PLAIN")
        connection.sasl.authenticated_ms -= 1000
        with pytest.raises(Closed):
            await send_handshake(node, connection, "SCRAM-SHA-256")
        assert (await log_in(node, connection, "PLAIN", "u", "secret")).error_code == 0
        await create(node, {"name": "t"}, connection=connection)
        connection.sasl.expiry._run()  # its time has come
        with pytest.raises(Closed):
            await call(node, "metadata", 12, metadata_tree(), connection=connection)
        connection.sasl.authenticated_ms -= 1000
        assert (await log_in(node, connection, "PLAIN", "u", "secret")).error_code == 0
        assert len((await call(node, "metadata", 12, metadata_tree("t"), connection=connection)).topics) == 1
        connection.sasl.authenticated_ms -= 1000
        assert (await log_in(node, connection, "PLAIN", "v", "secret")).error_code == 58
        assert connection.closes_after_answer and connection.principal == "User:u"

    with_node(tmp_path, use, connections_max_reauth_ms=60_000, connection_failed_authentication_delay_ms=0)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_clients_of_old_send_bare_messages_after_their_handshake(tmp_path: Path, mechanism: str) -> None:
    """KIP-43: SaslHandshake 0, then frames without a header until the client is authenticated, or the end."""
    add_user(tmp_path, "u", "secret")

    async def exchange(port: int, password: str) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def answer(frame: bytes) -> bytes:
            writer.write(len(frame).to_bytes(4, "big") + frame)
            return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))

        try:
            assert (await answer(bytes(request_bytes("sasl_handshake", 0, {"mechanism": mechanism}))))[4:6] == b"\0\0"
            if mechanism == "PLAIN":
                assert await answer(f"\0u\0{password}".encode()) == b""
            else:
                client = Client(mechanism, "u", password)
                assert await answer(client.last(await answer(client.first()))) == client.expected
            tree = {"topics": None, "allow_auto_topic_creation": False}
            assert len(await answer(bytes(request_bytes("metadata", 4, tree)))) > 20
        except asyncio.IncompleteReadError:
            return False
        finally:
            writer.close()
        return True

    async def run() -> None:
        settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "connection.failed.authentication.delay.ms": 0}
        async with serving([str(tmp_path)], ServerConfig({**SMALL, **settings})) as server:
            assert await exchange(server.ports["SASL_PLAINTEXT"], "secret")
            assert not await exchange(server.ports["SASL_PLAINTEXT"], "wrong")

    asyncio.run(run())
