"""Quotas: whose limit counts, and how long a client waits (KIP-13, KIP-55, KIP-124)."""

import asyncio
from pathlib import Path

import pytest

from kafkalog.server.node.node import Node
from kafkalog.server.requests.context import Connection, RequestContext
from kafkalog.server.security.file import SecurityFile
from kafkalog.server.security.quotas import FETCH, PRODUCE, Quotas
from kafkalog.server.security.rates import Rate, TokenBucket, Windows
from kafkalog.server.security.state import Entity, SecurityState
from kafkalog.server.serving import serving
from kafkalog.server.settings.config import ServerConfig
from tests.server.apis.test_topic_calls import create_tree, with_node
from tests.server.nodes import SMALL, call, connection_for

ELEVEN = Windows(11, 1000)


def make_entity(user: str | None = "", client: str | None = "") -> Entity:
    """An entity; "" leaves a part out, None is the default of all others."""
    pairs = [("client-id", client), ("user", user)]
    return tuple(pair for pair in pairs if pair[1] != "")


def make_context(user: str, client_id: str) -> RequestContext:
    connection = Connection(1, "SASL", "SASL_PLAINTEXT", ("h", 5))
    connection.principal = f"User:{user}"
    return RequestContext(0, 9, 1, client_id, connection, 0)


class Clock:
    now_ms = 50_000

    def __call__(self) -> int:
        return self.now_ms


def make_quotas(tmp_path: Path, limits: dict[Entity, dict[str, float]]) -> tuple[Quotas, Clock]:
    file, clock = SecurityFile(tmp_path), Clock()
    file.write(SecurityState(quotas=limits))
    return Quotas(file, clock, ELEVEN), clock


def test_a_rate_is_over_ten_seconds_at_the_least() -> None:
    """Missing samples count as empty ones: 11 of 1 s, the last one not yet full."""
    rate = Rate(ELEVEN)
    rate.record(1000, 0)
    assert rate.window_ms(0) == 10_000 and rate.per_second(0) == 100
    assert rate.window_ms(500) == 10_500
    rate.record(1000, 999)
    assert rate.per_second(1000) == 2000 / 10
    assert rate.window_ms(10_500) == 10_500 and rate.per_second(10_500) == pytest.approx(2000 / 10.5)
    assert rate.per_second(11_000) == 0


def test_the_wait_lets_the_rate_fall_to_the_limit() -> None:
    """(rate - limit) / limit x window."""
    rate = Rate(ELEVEN)
    rate.record(15_000, 0)  # 1500 a second over ten
    assert rate.throttle_ms(1500, 0) == 0
    assert rate.throttle_ms(1000, 0) == 5000


def test_a_wait_fits_into_an_answer() -> None:
    rate = Rate(ELEVEN)
    rate.record(10**9, 0)
    assert rate.throttle_ms(1, 0) == 2**31 - 1
    bucket = TokenBucket(0.001, ELEVEN, 0)
    bucket.take(10**6)
    assert bucket.wait_ms(0) == 2**31 - 1


def test_samples_are_never_more_than_the_windows() -> None:
    rate = Rate(Windows(3, 100))
    for number in range(50):
        rate.record(1, number * 100)
    assert len(rate._samples) == 3 and rate.per_second(4900) == pytest.approx(3 * 1000 / 200)


def test_the_most_specific_limit_counts(tmp_path: Path) -> None:
    """KIP-55, the order of its table."""
    order: list[Entity] = [
        make_entity("u", "c"), make_entity("u", None), make_entity("u"), make_entity(None, "c"),
        make_entity(None, None), make_entity(None), make_entity("", "c"), make_entity("", None),
    ]  # fmt: skip
    limits = {entity: {PRODUCE: float(number + 1)} for number, entity in enumerate(order)}
    for number, entity in enumerate(order):
        made, _ = make_quotas(tmp_path, limits)
        found = made.limit_of(PRODUCE, make_context("u", "c"))
        assert found is not None and found.value == number + 1
        assert made.limit_of(FETCH, make_context("u", "c")) is None
        del limits[entity]


def test_an_empty_client_id_has_only_the_limits_of_its_user(tmp_path: Path) -> None:
    limits = [make_entity("u", None), make_entity(None, None), make_entity("", None)]
    made, _ = make_quotas(tmp_path, {entity: {PRODUCE: 5.0} for entity in limits})
    assert made.limit_of(PRODUCE, make_context("u", "")) is None
    made, _ = make_quotas(tmp_path, {**dict.fromkeys(limits, {PRODUCE: 5.0}), make_entity(None): {PRODUCE: 7.0}})
    assert made.limit_of(PRODUCE, make_context("u", "")) == (7.0, "u", "")


def test_a_user_shares_a_limit_between_clients_and_not_with_other_users(tmp_path: Path) -> None:
    made, _ = make_quotas(tmp_path, {make_entity(None): {PRODUCE: 100.0}})
    assert made.record_produce(make_context("u", "a"), 1000) == 0
    assert made.record_produce(make_context("u", "b"), 500) == 5000
    assert made.record_produce(make_context("v", "b"), 500) == 0


def test_each_client_of_a_user_has_a_limit_of_its_own_where_it_says_so(tmp_path: Path) -> None:
    made, _ = make_quotas(tmp_path, {make_entity("u", None): {PRODUCE: 100.0}})
    assert made.record_produce(make_context("u", "a"), 1000) == 0
    assert made.record_produce(make_context("u", "b"), 1000) == 0
    assert made.record_produce(make_context("u", "b"), 100) == 1000


def test_clients_with_ever_new_names_cost_neither_time_nor_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkalog.server.security.quotas._MAX_RATES", 3)
    made, _ = make_quotas(tmp_path, {make_entity("", None): {PRODUCE: 100.0}})
    assert made.record_produce(make_context("u", "a"), 1000) == 0
    for number in range(50):
        assert made.record_produce(make_context("u", f"{number}" + "x" * 30_000), 1000) == 0
        assert len(made._rates) <= 3 and max(len(one[2]) for one in made._rates) < 300
        assert made.record_produce(make_context("u", "a"), 0) == 0
    assert made.record_produce(make_context("u", "a"), 100) == 1000  # who is there often is not forgotten


def test_what_was_not_sent_does_not_count(tmp_path: Path) -> None:
    made, clock = make_quotas(tmp_path, {make_entity("", "c"): {FETCH: 100.0}})
    assert made.max_fetch_bytes(make_context("u", "c")) == 1000 and made.max_fetch_bytes(make_context("u", "d")) is None
    assert made.record_fetch(make_context("u", "c"), 2000) == 10_000
    made.unrecord_fetch(make_context("u", "c"), 2000)
    assert made.record_fetch(make_context("u", "c"), 1000) == 0
    clock.now_ms += 11_000
    assert made.record_fetch(make_context("u", "c"), 1000) == 0


def test_time_of_the_server_is_limited_in_percent_and_never_waits_longer_than_a_window(tmp_path: Path) -> None:
    """KIP-124."""
    made, _ = make_quotas(tmp_path, {make_entity("u"): {"request_percentage": 10.0}})
    assert made.record_request(make_context("u", ""), 1000) == 0  # a second in ten
    assert made.record_request(make_context("u", ""), 50) == 500
    assert made.record_request(make_context("u", ""), 5000) == 1000


def test_a_limit_that_changes_counts_at_once(tmp_path: Path) -> None:
    file = SecurityFile(tmp_path)
    made = Quotas(file, Clock(), ELEVEN)
    assert made.record_produce(make_context("u", "c"), 10**9) == 0
    file.write(SecurityState(quotas={make_entity("u"): {PRODUCE: 10.0}}))
    assert made.record_produce(make_context("u", "c"), 1000) == 90_000


def test_a_client_above_its_limit_is_told_and_muted(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        limits = {make_entity("", "slow"): {"request_percentage": 0.000001}}
        await node.credentials.file.change(node.run, lambda state: state._replace(quotas=limits))
        tree = {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": False}
        for client_id, wait_ms in (("slow", 1000), ("fast", 0)):
            connection, before_ms = connection_for(), node.monotonic_ms()
            answer = await call(node, "describe_cluster", 2, tree, client_id=client_id, connection=connection)
            assert answer.throttle_time == wait_ms
            assert (connection.mute_until_ms > before_ms) == bool(wait_ms)

    with_node(tmp_path, use)


def test_partitions_are_made_as_fast_as_the_quota_says(tmp_path: Path) -> None:
    """KIP-599: what eleven windows have together may come at once; old versions wait, new ones are refused, too."""

    async def use(node: Node) -> None:
        now_ms = [node.monotonic_ms()]
        node.quotas._clock = lambda: now_ms[0]
        limits = {make_entity("", "c"): {"controller_mutation_rate": 1.0}}
        await node.credentials.file.change(node.run, lambda state: state._replace(quotas=limits))

        async def made(name: str, count: int, version: int = 7) -> tuple[int, int]:
            tree = create_tree({"name": name, "num_partitions": count})
            answer = await call(node, "create_topics", version, tree, client_id="c")
            return answer.topics[0].error_code, answer.throttle_time

        assert await made("a", 12) == (0, 1000)
        assert await made("b", 1) == (89, 1000) and node.topics.get("b") is None
        assert await made("c", 1, version=5) == (0, 2000)
        now_ms[0] += 2000
        assert await made("b", 1) == (0, 1000)
        tree = {"topics": [{"name": "a", "topic_id": None}], "timeout": 1}
        answer = await call(node, "delete_topics", 6, tree, client_id="c")
        assert answer.responses[0].error_code == 89
        tree = {"topics": [{"name": "a", "count": 13, "assignments": None}], "timeout": 1, "validate_only": False}
        answer = await call(node, "create_partitions", 3, tree, client_id="c")
        assert answer.results[0].error_code == 89
        answer = await call(node, "create_partitions", 3, tree, client_id="another")
        assert answer.results[0].error_code == 0 and answer.throttle_time == 0

    with_node(tmp_path, use)


def test_an_address_connects_as_often_as_its_quota_says(tmp_path: Path) -> None:
    """KIP-612."""
    made, clock = make_quotas(tmp_path, {(("ip", "10.0.0.1"),): {"connection_creation_rate": 1.0}})
    assert [made.takes_connection("10.0.0.1") for _ in range(12)] == [True] * 10 + [False] * 2
    assert made.takes_connection("10.0.0.2")
    clock.now_ms += 11_000
    assert made.takes_connection("10.0.0.1")


def test_a_connection_too_many_is_closed(tmp_path: Path) -> None:
    SecurityFile(tmp_path).write(SecurityState(quotas={(("ip", None),): {"connection_creation_rate": 0.1}}))

    async def run() -> None:
        config = ServerConfig({**SMALL, "listeners": "PLAINTEXT://127.0.0.1:0"})
        async with serving([str(tmp_path)], config) as server:
            first, second = [
                await asyncio.open_connection("127.0.0.1", server.ports["PLAINTEXT"]) for _ in range(2)
            ]
            assert await second[0].read() == b""
            assert not first[0].at_eof()
            for _, writer in (first, second):
                writer.close()

    asyncio.run(run())
