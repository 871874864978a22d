"""Authorization: the rules of the reference's authorizer, and filter matching (KIP-11, KIP-290, KIP-679)."""

import logging

import pytest

from kafkalog.server.requests.context import Connection, RequestContext
from kafkalog.server.security.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from kafkalog.server.security.authorizer import Authorizer, split_principals

T, DO = ResourceType.TOPIC, Operation


def make_acl(
    name: str,
    operation: Operation,
    permission: Permission = Permission.ALLOW,
    *,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:u",
    host: str = "*",
    kind: ResourceType = T,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def is_allowed(
    acls: list[Acl],
    operation: Operation,
    name: str = "t",
    *,
    principal: str = "User:u",
    host: str = "h",
    **more: object,
) -> bool:
    entries = tuple(acls)
    made = Authorizer(lambda: entries, is_enabled=True, **more)  # type: ignore[arg-type]
    return made.is_allowed(principal, host, operation, T, name)


def make_context(principal: str = "User:u", host: str = "h") -> RequestContext:
    connection = Connection(1, "SASL", "SASL_PLAINTEXT", (host, 5))
    connection.principal = principal
    return RequestContext(3, 13, 1, "c", connection, 0)


def test_without_an_authorizer_everything_is_allowed() -> None:
    made = Authorizer(lambda: [make_acl("t", DO.ALL, Permission.DENY)])
    assert made.is_allowed("User:u", "h", DO.READ, T, "t") and made.allows_any(make_context(), DO.WRITE, T)


def test_nothing_is_allowed_that_no_entry_allows_unless_it_is_told_so() -> None:
    assert not is_allowed([], DO.READ)
    assert is_allowed([], DO.READ, allows_if_no_acl=True)
    assert not is_allowed([make_acl("t", DO.WRITE, principal="User:other")], DO.READ, allows_if_no_acl=True)
    assert is_allowed([make_acl("other", DO.WRITE)], DO.READ, allows_if_no_acl=True)


def test_an_entry_that_denies_comes_first_and_a_super_user_before_it() -> None:
    entries = [make_acl("t", DO.ALL), make_acl("t", DO.READ, Permission.DENY)]
    assert not is_allowed(entries, DO.READ) and is_allowed(entries, DO.WRITE)
    assert is_allowed(entries, DO.READ, super_users=["User:u"])
    denied = [make_acl("t", DO.ALL), make_acl("*", DO.READ, Permission.DENY, principal="User:*")]
    assert not is_allowed(denied, DO.READ)


def test_names_are_meant_literally_as_a_prefix_or_all_of_them() -> None:
    assert is_allowed([make_acl("*", DO.READ)], DO.READ)
    assert is_allowed([make_acl("te", DO.READ, pattern=PatternType.PREFIXED)], DO.READ, "test")
    assert not is_allowed([make_acl("te", DO.READ)], DO.READ, "test")
    assert not is_allowed([make_acl("*", DO.READ, pattern=PatternType.PREFIXED)], DO.READ, "test")
    assert not is_allowed([make_acl("test", DO.READ, pattern=PatternType.PREFIXED)], DO.READ, "te")


def test_a_refusal_is_told_once_for_each_kind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made = Authorizer(tuple, is_enabled=True)
    for _ in range(5):
        assert not made.is_allowed("User:u", "h", DO.READ, T, "t")
    assert caplog.messages == ["User:u is denied READ on TOPIC 't', from h"]


def test_long_names_are_decided_and_not_kept() -> None:
    entries = (make_acl("x", DO.READ, pattern=PatternType.PREFIXED),)
    made = Authorizer(lambda: entries, is_enabled=True)
    for name in ("x" * 255, "x" * 256, "x" * 30_000):
        assert made.is_allowed("User:u", "h", DO.READ, T, name)
        assert not made.is_allowed("User:v", "h", DO.READ, T, name)
    assert len(made._decisions) == 2


def test_host_and_principal_have_to_be_those_of_the_entry() -> None:
    assert not is_allowed([make_acl("t", DO.READ, host="10.0.0.1")], DO.READ)
    assert is_allowed([make_acl("t", DO.READ, host="10.0.0.1")], DO.READ, host="10.0.0.1")
    assert is_allowed([make_acl("t", DO.READ, principal="User:*")], DO.READ, principal="User:x")
    assert not is_allowed([make_acl("t", DO.READ)], DO.READ, principal="User:x")


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [
        ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"), ("10.0.0.7/31", "10.0.0.6", "10.0.0.8"),
        ("10.0.0.1/32", "10.0.0.1", "10.0.0.0"), ("0.0.0.0/0", "9.9.9.9", "::1"),
        ("010.0.0.0/08", "10.1.1.1", "8.0.0.1"), ("fe80::/10", "fe80::1%eth0", "fec0::1"), ("::/0", "::1", "9.9.9.9"),
        ("0.0.0.0/0", "9.9.9.9", "a name"),
    ],
)  # fmt: skip
def test_a_host_of_an_entry_may_be_a_network(network: str, inside: str, outside: str) -> None:
    allowed = [make_acl("t", DO.READ, host=network)]
    assert is_allowed(allowed, DO.READ, host=inside) and not is_allowed(allowed, DO.READ, host=outside)
    denied = [make_acl("t", DO.READ), make_acl("t", DO.READ, Permission.DENY, host=network)]
    assert not is_allowed(denied, DO.READ, host=inside) and is_allowed(denied, DO.READ, host=outside)
    entries = (make_acl("t", DO.WRITE, host=network),)
    made = Authorizer(lambda: entries, is_enabled=True)
    assert made.allows_any(make_context(host=inside), DO.WRITE, T)
    assert not made.allows_any(make_context(host=outside), DO.WRITE, T)


@pytest.mark.parametrize("network", ["10.0.0.0/33", "10.0.0.256/8", "10.0.0/8", "::/129", "10.0.0.0/", "/8", "a/8"])
def test_a_host_that_is_no_network_matches_no_client(network: str) -> None:
    assert not is_allowed([make_acl("t", DO.READ, host=network)], DO.READ, host="10.0.0.1")


def test_what_is_implied_is_allowed_and_never_denied() -> None:
    for operation in (DO.READ, DO.WRITE, DO.DELETE, DO.ALTER):
        assert is_allowed([make_acl("t", operation)], DO.DESCRIBE)
        assert is_allowed([make_acl("t", DO.DESCRIBE), make_acl("t", operation, Permission.DENY)], DO.DESCRIBE)
    assert not is_allowed([make_acl("t", DO.CREATE)], DO.DESCRIBE)
    assert is_allowed([make_acl("t", DO.ALTER_CONFIGS)], DO.DESCRIBE_CONFIGS)
    assert not is_allowed([make_acl("t", DO.DESCRIBE_CONFIGS)], DO.ALTER_CONFIGS)


def test_a_change_of_the_entries_counts_at_once() -> None:
    entries: list[tuple[Acl, ...]] = [()]
    made = Authorizer(lambda: entries[0], is_enabled=True)
    assert not made.is_allowed("User:u", "h", DO.READ, T, "t")
    entries[0] = (make_acl("t", DO.READ),)
    assert made.is_allowed("User:u", "h", DO.READ, T, "t")


def any_write(acls: list[Acl], **more: object) -> bool:
    entries = tuple(acls)
    made = Authorizer(lambda: entries, is_enabled=True, **more)  # type: ignore[arg-type]
    return made.allows_any(make_context(), DO.WRITE, T)


def test_one_topic_that_may_be_written_is_enough_for_an_idempotent_producer() -> None:
    """KIP-679."""
    deny = Permission.DENY
    assert any_write([make_acl("t", DO.WRITE)])
    assert any_write([make_acl("t", DO.ALL)]) and not any_write([make_acl("t", DO.READ)])
    assert not any_write([make_acl("t", DO.WRITE), make_acl("t", DO.WRITE, deny)])
    assert any_write([make_acl("t", DO.WRITE), make_acl("t", DO.WRITE, deny, host="elsewhere")])
    assert not any_write([make_acl("t", DO.WRITE), make_acl("*", DO.WRITE, deny)])
    assert not any_write([make_acl("topic", DO.WRITE), make_acl("to", DO.WRITE, deny, pattern=PatternType.PREFIXED)])
    assert any_write([make_acl("to", DO.WRITE, pattern=PatternType.PREFIXED), make_acl("to", DO.WRITE, deny)])
    assert any_write([], super_users=["User:u"]) and any_write([], allows_if_no_acl=True)


def test_operations_come_as_bits() -> None:
    made = Authorizer(tuple)
    assert made.allowed_operations(make_context(), T, "t") == 3576
    assert made.allowed_operations(make_context(), ResourceType.CLUSTER, "kafka-cluster") == 8096
    entries = (make_acl("t", DO.READ),)
    made = Authorizer(lambda: entries, is_enabled=True)
    assert made.allowed_operations(make_context(), T, "t") == 1 << DO.READ | 1 << DO.DESCRIBE


def make_filter(
    name: str | None = None, pattern: PatternType = PatternType.ANY, principal: str | None = None
) -> AclFilter:
    return AclFilter(ResourceType.ANY, name, pattern, principal, None, DO.ANY, Permission.ANY)


def test_filters() -> None:
    """KIP-290: MATCH takes whatever is about the name."""
    literal, star = make_acl("test", DO.READ), make_acl("*", DO.READ)
    prefix = make_acl("te", DO.READ, pattern=PatternType.PREFIXED)
    every = (literal, prefix, star)

    def found(one: AclFilter) -> list[Acl]:
        return [entry for entry in every if one.matches(entry)]

    assert found(make_filter()) == [literal, prefix, star]
    assert found(make_filter("test", PatternType.MATCH)) == [literal, prefix, star]
    assert found(make_filter("test", PatternType.LITERAL)) == [literal]
    assert found(make_filter("te", PatternType.ANY)) == [prefix]
    assert found(make_filter("te", PatternType.LITERAL)) == []
    assert found(make_filter("*", PatternType.LITERAL)) == [star]
    assert found(make_filter(principal="User:v")) == []


def test_super_users_stand_between_semicolons() -> None:
    assert split_principals("User:a; User:CN=b,O=c ;") == {"User:a", "User:CN=b,O=c"}
