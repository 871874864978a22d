"""`kafkalog promote`: make a node the leader of its replica set."""

from __future__ import annotations

from typing import Any

import click

_ELECT_LEADERS = 43
_PREFERRED, _UNCLEAN = 0, 1
_PATIENCE_MS = 60_000


@click.command("promote")
@click.argument("address", metavar="HOST:PORT")
@click.option("--force", is_flag=True, help="Without the votes of a majority: the other nodes are dead for good.")
@click.option(
    "--config", "config_file", type=click.Path(), metavar="FILE", help="A client's properties: TLS and login."
)
def command(address: str, force: bool, config_file: str | None) -> int:
    """Let the server at HOST:PORT lead its replica set.

    A leader that answers hands over: it takes no writes for a moment, until this server has all of its records and a
    majority of the set has voted; requests that come meanwhile wait. Where this server does not catch up within
    kafkalog.handover.timeout.ms, the leader leads on, and nothing has changed.

    A leader that does not answer is dead or cut off: this server copies what the others have more of, and leads where
    a majority of the set, itself counted, answers. No record that was acknowledged with acks=all is lost.

    With --force it leads without hand-over and votes: what it lacks is lost. That is for a set of which the majority
    is gone. A node that led before steps down as soon as it hears of it.

    Exit status: 0 where it leads, also where it led already; 1 where it does not, with the reason; 2 for a wrong
    command line.
    """
    import asyncio
    from dataclasses import replace

    from kafkalog.server.client.settings import peer_settings
    from kafkalog.server.config import read_server_properties

    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise click.UsageError(f"{address!r} is no HOST:PORT")
    settings = peer_settings(read_server_properties(config_file) if config_file else {})
    settings = replace(settings, request_ms=max(settings.request_ms, _PATIENCE_MS))
    (old_term, old), (term, leader) = asyncio.run(_promote(host.strip("[]"), int(port), settings, force))
    if (old_term, old) == (term, leader):
        click.echo(f"{address} led already: node {leader}, in term {term}")
    else:
        before = f"after node {old} in term {old_term}" if old >= 0 else "nobody was known to lead"
        click.echo(f"{address} leads: node {leader}, in term {term}, {before}")
    return 0


async def _promote(host: str, port: int, settings: Any, force: bool) -> tuple[tuple[int, int], tuple[int, int]]:
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
            told = [row.error_message for one in answer.replica_election_results for row in one.partition_result]
            words = (told and told[0]) or ErrorCode(code).message or ""
            if code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
                hint = "the logs of the servers say which are ahead, or away; --force gives up what this one lacks"
                raise ElectionFailed(words, hint=hint)
            raise from_code(code, words)
        return before, read_described(await connection.request(DESCRIBE_QUORUM, describe_request()))
    finally:
        await connection.close()
