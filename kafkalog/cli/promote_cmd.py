"""`kafkalog promote`: let a node of a replica set lead."""

from __future__ import annotations

from typing import Any

import click

_ELECT_LEADERS = 43
_PREFERRED, _UNCLEAN = 0, 1


@click.command("promote")
@click.argument("address", metavar="HOST:PORT")
@click.option("--force", is_flag=True, help="Without the votes of a majority: the other nodes are dead for good.")
@click.option(
    "--config", "config_file", type=click.Path(), metavar="FILE", help="A client's properties: TLS and login."
)
def command(address: str, force: bool, config_file: str | None) -> int:
    """Let the server at HOST:PORT lead its replica set.

    It asks the others first, and leads only where a majority of the set, itself counted, has nothing that it lacks.
    With --force it leads without them: what it lacks is lost. The node that led before steps down as soon as it hears
    of it.
    """
    import asyncio

    from kafkalog.server.client.settings import peer_settings
    from kafkalog.server.config import read_server_properties

    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise click.UsageError(f"{address!r} is no HOST:PORT")
    settings = peer_settings(read_server_properties(config_file) if config_file else {})
    needed = asyncio.run(_promote(host.strip("[]"), int(port), settings, force))
    click.echo(f"{address} leads" if needed else f"{address} led already")
    return 0


async def _promote(host: str, port: int, settings: Any, force: bool) -> bool:
    """False where the node led already. PeerError; ApiError as the node tells."""
    from kafkalog.errors import from_code
    from kafkalog.server.client.login import connect
    from kafkalog.server.error_codes import ErrorCode
    from kafkalog.server.quorum.errors import ElectionFailed
    from kafkalog.server.quorum.messages import DESCRIBE_QUORUM, describe_request, read_described

    connection = await connect(host, port, settings)
    try:
        before = read_described(await connection.request(DESCRIBE_QUORUM, describe_request()))
        tree = {"election_type": _UNCLEAN if force else _PREFERRED, "topic_partitions": None, "timeout": 30_000}
        answer = await connection.request(_ELECT_LEADERS, tree)
        code = int(answer.error_code)
        if code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
            raise ElectionFailed(
                "too few nodes of the set voted for it", hint="the logs of the servers say which are ahead, or away"
            )
        if code:
            raise from_code(code, ErrorCode(code).message or "")
        return read_described(await connection.request(DESCRIBE_QUORUM, describe_request())) != before
    finally:
        await connection.close()
