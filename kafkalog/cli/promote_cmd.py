"""`kafkalog promote`: make a node the leader of its replica set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kafkalog.server.client.settings import PeerSettings

_ELECT_LEADERS = 43
_PREFERRED, _UNCLEAN = 0, 1
_PATIENCE_MS = 60_000


@click.command("promote")
@click.argument("address", metavar="HOST:PORT")
@click.option("--force", is_flag=True, help="Skip the votes of a majority: the other nodes are permanently lost.")
@click.option(
    "--config", "config_file", type=click.Path(), metavar="FILE", help="Client properties file: TLS and login."
)
def command(address: str, force: bool, config_file: str | None) -> int:
    """Make the server at HOST:PORT the leader of its replica set.

    A leader that answers hands over: it pauses writes until this server has all of its records and a majority of the
    set has voted. Requests that arrive in the meantime wait. If this server does not catch up within
    kafkalog.handover.timeout.ms, the leader stays leader and nothing changes.

    A leader that does not answer is dead or cut off. This server then copies the records that the others have and it
    lacks, and becomes leader if a majority of the set, including itself, answers. No record that was acknowledged with
    acks=all is lost.

    With --force, the server becomes leader without hand-over or votes; records that it lacks are lost. Use it only if
    the majority of the set is lost. A former leader steps down as soon as it learns of the new one.

    Example: kafkalog promote node2:9092 --config client.properties

    Exit status: 0 the server is the leader (even if it was before), 1 it is not (the reason is printed), 2 wrong
    usage.
    """
    import asyncio
    from dataclasses import replace

    from kafkalog.server.client.settings import peer_settings
    from kafkalog.server.settings.config import read_server_properties

    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise click.UsageError(f"{address!r} is not HOST:PORT")
    settings = peer_settings(read_server_properties(config_file) if config_file else {})
    settings = replace(settings, request_ms=max(settings.request_ms, _PATIENCE_MS))
    (old_term, old), (term, leader) = asyncio.run(_promote(host.strip("[]"), int(port), settings, force))
    if (old_term, old) == (term, leader):
        click.echo(f"{address} is already the leader: node {leader}, in term {term}")
    else:
        before = f"after node {old} in term {old_term}" if old >= 0 else "no leader was known"
        click.echo(f"{address} is now the leader: node {leader}, in term {term}, {before}")
    return 0


async def _promote(
    host: str, port: int, settings: PeerSettings, force: bool
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Promote the node; return (term, leader) before and after. Raises PeerError; the node's ApiError."""
    from kafkalog.errors import from_code
    from kafkalog.server.client.login import connect
    from kafkalog.server.error_codes import ErrorCode
    from kafkalog.server.quorum.errors import ElectionFailed
    from kafkalog.server.quorum.messages import DESCRIBE_QUORUM, WHOLE, describe_request, read_described

    connection = await connect(host, port, settings)
    try:
        before = read_described(await connection.request(DESCRIBE_QUORUM, describe_request()))
        whole = [{"topic": WHOLE.topic, "partitions": [WHOLE.partition]}]  # one row, for the text of an error
        election = _UNCLEAN if force else _PREFERRED
        tree = {"election_type": election, "topic_partitions": whole, "timeout": _PATIENCE_MS}
        answer = await connection.request(_ELECT_LEADERS, tree)
        code = int(answer.error_code)
        if code:
            messages = [row.error_message for one in answer.replica_election_results for row in one.partition_result]
            text = (messages and messages[0]) or ErrorCode(code).message or ""
            if code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
                hint = "the servers' logs show which are ahead or unreachable; --force discards what this one lacks"
                raise ElectionFailed(text, hint=hint)
            raise from_code(code, text)
        return before, read_described(await connection.request(DESCRIBE_QUORUM, describe_request()))
    finally:
        await connection.close()
