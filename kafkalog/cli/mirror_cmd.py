"""`kafkalog mirror`: a standby copy of topics of a Kafka cluster."""

from __future__ import annotations

import click

from kafkalog.cli import common


@click.command("mirror")
@click.option("--from", "source", required=True, metavar="HOST:PORT[,...]", help="Brokers of the cluster.")
@common.dir_option
@click.option("-t", "--topic", "topics", multiple=True, required=True, metavar="TOPIC", help="Topic; repeatable.")
@click.option("--once", is_flag=True, help="Exit once all existing records are copied.")
@common.settings_option("Client setting, such as security.protocol=SASL_SSL")
@common.quiet_options
def command(
    source: str, dirs: tuple[str, ...], topics: tuple[str, ...], once: bool, settings: dict[str, str], quiet: bool,
    verbose: int,
) -> int:
    """Mirror topics of a Kafka cluster into data directories, until SIGTERM or Ctrl-C.

    New records are copied while the topics are written. Offsets, batches, topic ids and settings are those of the
    cluster. A restarted mirror continues where it stopped. No other process may write to the directories while a
    mirror is running.

    Example: kafkalog mirror --from broker1:9092,broker2:9092 -d data -t orders --once
    """  # fmt: skip
    from kafkalog.server.client.settings import peer_settings
    from kafkalog.server.mirror.running import run_mirror

    common.show_server_log(quiet, verbose)
    peers = peer_settings({"client.id": "kafkalog-mirror", **settings})
    return run_mirror(common.need_dirs(dirs), _addresses(source), topics, peers, once=once)


def _addresses(text: str) -> list[tuple[str, int]]:
    found = []
    for one in text.split(","):
        host, colon, port = one.strip().rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise click.BadParameter(f"{one.strip()!r} is not HOST:PORT", param_hint="--from")
        found.append((host.removeprefix("[").removesuffix("]"), int(port)))
    return found
