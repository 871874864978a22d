"""Who may do what: the rules of the reference's authorizer, and what filters match (KIP-11, KIP-290, KIP-679)."""

import logging

import pytest

from kafkalog.server.requests.context import Connection, RequestContext
from kafkalog.server.security.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from kafkalog.server.security.authorizer import Authorizer, split_principals

T, DO = ResourceType.TOPIC, Operation


def acl(
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


def may(
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


def context(principal: str = "User:u", host: str = "h") -> RequestContext:
    connection = Connection(1, "SASL", "SASL_PLAINTEXT", (host, 5))
    connection.principal = principal
    return RequestContext(3, 13, 1, "c", connection, 0)


def test_without_an_authorizer_everything_is_allowed() -> None:
    made = Authorizer(lambda: [acl("t", DO.ALL, Permission.DENY)])
    assert made.is_allowed("User:u", "h", DO.READ, T, "t") and made.allows_any(context(), DO.WRITE, T)


def test_nothing_is_allowed_that_no_entry_allows_unless_it_is_told_so() -> None:
    assert not may([], DO.READ)
    assert may([], DO.READ, allows_if_no_acl=True)
    assert not may([acl("t", DO.WRITE, principal="User:other")], DO.READ, allows_if_no_acl=True)
    assert may([acl("other", DO.WRITE)], DO.READ, allows_if_no_acl=True)


def test_an_entry_that_denies_comes_first_and_a_super_user_before_it() -> None:
    entries = [acl("t", DO.ALL), acl("t", DO.READ, Permission.DENY)]
    assert not may(entries, DO.READ) and may(entries, DO.WRITE)
    assert may(entries, DO.READ, super_users=["User:u"])
    denied = [acl("t", DO.ALL), acl("*", DO.READ, Permission.DENY, principal="User:*")]
    assert not may(denied, DO.READ)


def test_names_are_meant_literally_as_a_prefix_or_all_of_them() -> None:
    assert may([acl("*", DO.READ)], DO.READ)
    assert may([acl("te", DO.READ, pattern=PatternType.PREFIXED)], DO.READ, "test")
    assert not may([acl("te", DO.READ)], DO.READ, "test")
    assert not may([acl("*", DO.READ, pattern=PatternType.PREFIXED)], DO.READ, "test")
    assert not may([acl("test", DO.READ, pattern=PatternType.PREFIXED)], DO.READ, "te")


def test_a_refusal_is_told_once_for_each_kind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made = Authorizer(tuple, is_enabled=True)
    for _ in range(5):
        assert not made.is_allowed("User:u", "h", DO.READ, T, "t")
    assert caplog.messages == ["User:u is denied READ on TOPIC 't', from h"]


def test_long_names_are_decided_and_not_kept() -> None:
    entries = (acl("x", DO.READ, pattern=PatternType.PREFIXED),)
    made = Authorizer(lambda: entries, is_enabled=True)
    for name in ("x" * 255, "x" * 256, "x" * 30_000):
        assert made.is_allowed("User:u", "h", DO.READ, T, name)
        assert not made.is_allowed("User:v", "h", DO.READ, T, name)
    assert len(made._known) == 2


def test_host_and_principal_have_to_be_those_of_the_entry() -> None:
    assert not may([acl("t", DO.READ, host="10.0.0.1")], DO.READ)
    assert may([acl("t", DO.READ, host="10.0.0.1")], DO.READ, host="10.0.0.1")
    assert may([acl("t", DO.READ, principal="User:*")], DO.READ, principal="User:x")
    assert not may([acl("t", DO.READ)], DO.READ, principal="User:x")


def test_what_is_implied_is_allowed_and_never_denied() -> None:
    for operation in (DO.READ, DO.WRITE, DO.DELETE, DO.ALTER):
        assert may([acl("t", operation)], DO.DESCRIBE)
        assert may([acl("t", DO.DESCRIBE), acl("t", operation, Permission.DENY)], DO.DESCRIBE)
    assert not may([acl("t", DO.CREATE)], DO.DESCRIBE)
    assert may([acl("t", DO.ALTER_CONFIGS)], DO.DESCRIBE_CONFIGS)
    assert not may([acl("t", DO.DESCRIBE_CONFIGS)], DO.ALTER_CONFIGS)


def test_a_change_of_the_entries_counts_at_once() -> None:
    entries: list[tuple[Acl, ...]] = [()]
    made = Authorizer(lambda: entries[0], is_enabled=True)
    assert not made.is_allowed("User:u", "h", DO.READ, T, "t")
    entries[0] = (acl("t", DO.READ),)
    assert made.is_allowed("User:u", "h", DO.READ, T, "t")


def any_write(acls: list[Acl], **more: object) -> bool:
    entries = tuple(acls)
    made = Authorizer(lambda: entries, is_enabled=True, **more)  # type: ignore[arg-type]
    return made.allows_any(context(), DO.WRITE, T)


def test_one_topic_that_may_be_written_is_enough_for_an_idempotent_producer() -> None:
    """KIP-679."""
    deny = Permission.DENY
    assert any_write([acl("t", DO.WRITE)])
    assert any_write([acl("t", DO.ALL)]) and not any_write([acl("t", DO.READ)])
    assert not any_write([acl("t", DO.WRITE), acl("t", DO.WRITE, deny)])
    assert any_write([acl("t", DO.WRITE), acl("t", DO.WRITE, deny, host="elsewhere")])
    assert not any_write([acl("t", DO.WRITE), acl("*", DO.WRITE, deny)])
    assert not any_write([acl("topic", DO.WRITE), acl("to", DO.WRITE, deny, pattern=PatternType.PREFIXED)])
    assert any_write([acl("to", DO.WRITE, pattern=PatternType.PREFIXED), acl("to", DO.WRITE, deny)])
    assert any_write([], super_users=["User:u"]) and any_write([], allows_if_no_acl=True)


def test_operations_come_as_bits() -> None:
    made = Authorizer(tuple)
    assert made.allowed_operations(context(), T, "t") == 3576
    assert made.allowed_operations(context(), ResourceType.CLUSTER, "kafka-cluster") == 8096
    entries = (acl("t", DO.READ),)
    made = Authorizer(lambda: entries, is_enabled=True)
    assert made.allowed_operations(context(), T, "t") == 1 << DO.READ | 1 << DO.DESCRIBE


def wanted(
    name: str | None = None, pattern: PatternType = PatternType.ANY, principal: str | None = None
) -> AclFilter:
    return AclFilter(ResourceType.ANY, name, pattern, principal, None, DO.ANY, Permission.ANY)


def test_filters() -> None:
    """KIP-290: MATCH takes whatever is about the name."""
    literal, prefix, star = acl("test", DO.READ), acl("te", DO.READ, pattern=PatternType.PREFIXED), acl("*", DO.READ)
    every = (literal, prefix, star)

    def found(one: AclFilter) -> list[Acl]:
        return [entry for entry in every if one.matches(entry)]

    assert found(wanted()) == [literal, prefix, star]
    assert found(wanted("test", PatternType.MATCH)) == [literal, prefix, star]
    assert found(wanted("test", PatternType.LITERAL)) == [literal]
    assert found(wanted("te", PatternType.ANY)) == [prefix]
    assert found(wanted("te", PatternType.LITERAL)) == []
    assert found(wanted("*", PatternType.LITERAL)) == [star]
    assert found(wanted(principal="User:v")) == []


def test_super_users_stand_between_semicolons() -> None:
    assert split_principals("User:a; User:CN=b,O=c ;") == {"User:a", "User:CN=b,O=c"}
