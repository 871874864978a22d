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
@common.verbosity_flags
def command(
    source: str, dirs: tuple[str, ...], topics: tuple[str, ...], once: bool, settings: dict[str, str],
) -> int:
    """Mirror topics of a Kafka cluster into data directories, until SIGTERM or Ctrl-C.

    New records are copied while the topics are written. Offsets, batches, topic ids and settings are those of the
    cluster. A restarted mirror continues where it stopped. No other process may write to the directories while a
    mirror is running.

    Example: kafkalog mirror --from broker1:9092,broker2:9092 -d data -t orders --once
    """  # fmt: skip
    from kafkalog.copy.places import parse_addresses
    from kafkalog.server.client.settings import peer_settings
    from kafkalog.server.mirror.running import run_mirror

    common.show_server_log()
    with common.usage_of("--from"):
        addresses = parse_addresses(source)
    peers = peer_settings({"client.id": "kafkalog-mirror", **settings})
    return run_mirror(common.need_dirs(dirs), addresses, topics, peers, once=once)
