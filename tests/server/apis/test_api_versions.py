"""ApiVersions over real bytes (FLOW-25): the table, versions that are not known, names of software, what closes."""

import asyncio
from importlib import import_module
from pathlib import Path

import pytest

from kafkalog.server.apis.dispatch import dispatch, offered
from kafkalog.server.requests.context import CLOSE
from tests.server.nodes import Closed, call, connection_for, joined, node_for, request_bytes

SOFTWARE = {"client_software_name": "a-client", "client_software_version": "1.2"}


@pytest.mark.parametrize("version", range(6))
def test_every_version_gives_the_calls_that_are_served(tmp_path: Path, version: int) -> None:
    async def run() -> None:
        async with node_for(tmp_path) as node:
            answer = await call(node, "api_versions", version, SOFTWARE if version >= 3 else {})
            assert answer.error_code == 0
            assert {(one.api_key, one.min_version, one.max_version) for one in answer.api_keys} == {
                (api.key, api.oldest, api.newest) for api in offered().values()
            }

    asyncio.run(run())


def test_an_unknown_version_is_answered_in_version_0_with_the_range_of_this_call(tmp_path: Path) -> None:
    async def run() -> None:
        async with node_for(tmp_path) as node:
            frame = request_bytes("api_versions", 5, SOFTWARE)
            frame[2:4] = (99).to_bytes(2, "big")
            pieces = await dispatch(node, connection_for(), frame)
            assert isinstance(pieces, list)
            data = joined(pieces)
            assert data[4:6] == (35).to_bytes(2, "big")
            assert data[6:] == (1).to_bytes(4, "big") + bytes([0, 18, 0, 0, 0, 5])

    asyncio.run(run())


@pytest.mark.parametrize("name", ["", "-a", "a b", "a\n", "ä"])
def test_a_bad_name_of_the_software_is_refused(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with node_for(tmp_path) as node:
            answer = await call(node, "api_versions", 3, {**SOFTWARE, "client_software_name": name})
            assert answer.error_code == 42
            assert answer.api_keys == ()

    asyncio.run(run())


THEIRS = "a2Fma2Fsb2ctaW50ZXJvcA"


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [("", None, 129), ("", 2, 129), (None, None, 42), (None, 5, 42), (THEIRS, -1, 42), ("", -1, 42),
     (THEIRS, None, 129), (THEIRS, -5, 129), (None, -1, 0)],
)  # fmt: skip
def test_a_client_that_means_another_cluster_or_node_bootstraps_again(
    tmp_path: Path, cluster_id: str | None, node_id: int | None, code: int
) -> None:
    """KIP-1242, as a broker of 4.4 answers: both must be given or none; `node_id` None is the node's own."""

    async def run() -> None:
        async with node_for(tmp_path) as node:
            number = node.node_id if node_id is None else node_id
            answer = await call(node, "api_versions", 5, {**SOFTWARE, "cluster_id": cluster_id, "node_id": number})
            assert answer.error_code == code
            assert (answer.api_keys == ()) == (code != 0)
            right = {**SOFTWARE, "cluster_id": node.cluster_id, "node_id": node.node_id}
            assert (await call(node, "api_versions", 5, right)).error_code == 0
            assert (await call(node, "api_versions", 5, {**right, "node_id": node.node_id + 1})).error_code == 129

    asyncio.run(run())


def test_the_software_is_kept_with_the_connection(tmp_path: Path) -> None:
    async def run() -> None:
        async with node_for(tmp_path) as node:
            connection = connection_for()
            await call(node, "api_versions", 4, SOFTWARE, connection=connection)
            assert (connection.software_name, connection.software_version) == ("a-client", "1.2")
            long = {**SOFTWARE, "client_software_name": "a" * 30_000}
            await call(node, "api_versions", 4, long, connection=connection)
            assert connection.software_name == "a" * 100

    asyncio.run(run())


def test_unknown_calls_and_bodies_that_are_none_close_the_connection(tmp_path: Path) -> None:
    async def run() -> None:
        async with node_for(tmp_path) as node:
            whole = request_bytes("api_versions", 3, SOFTWARE)
            bad = [whole[:size] for size in range(len(whole))]
            unknown = bytearray(whole)
            unknown[0:2] = (999).to_bytes(2, "big")
            for frame in [*bad, unknown]:
                assert await dispatch(node, connection_for(), bytearray(frame)) is CLOSE
            assert await dispatch(node, connection_for(), bytearray(whole + b"\0")) is not CLOSE

    asyncio.run(run())


def test_nothing_but_the_way_in_is_answered_before_authentication(tmp_path: Path) -> None:
    async def run() -> None:
        async with node_for(tmp_path) as node:
            connection = connection_for(security_protocol="SASL_PLAINTEXT")
            assert (await call(node, "api_versions", 0, connection=connection)).error_code == 0
            for name in {api.name for api in offered().values()} & {"metadata"}:
                with pytest.raises(Closed):
                    await call(node, name, 0, {"topics": None}, connection=connection)

    asyncio.run(run())


def test_every_call_of_the_table_has_a_module_that_answers() -> None:
    for api in offered(True).values():
        assert callable(import_module(f"kafkalog.server.apis.{api.name}").handle)
