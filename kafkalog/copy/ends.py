"""The source and target of a copy: checked, opened as users name them, and closed together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalog.backup.create import check_places
from kafkalog.copy.backup_target import BackupTarget
from kafkalog.copy.cluster_client import ClusterClient
from kafkalog.copy.cluster_source import ClusterSource
from kafkalog.copy.cluster_target import ClusterTarget
from kafkalog.copy.directory_target import DirectoryTarget
from kafkalog.copy.places import backups_of, is_cluster, parse_addresses, settings_for
from kafkalog.copy.run import Options
from kafkalog.copy.sources import is_backup, open_files
from kafkalog.copy.tiering import key_of
from kafkalog.errors import IllegalArgument
from kafkalog.server.client.settings import peer_settings
from kafkalog.server.packages import check_packages
from kafkalog.storage.remote import is_url, refuse_to_write
from kafkalog.tiered.description import read_description

if TYPE_CHECKING:
    from kafkalog.copy.sources import Source
    from kafkalog.copy.targets import Target


class Ends:
    """Context manager with both ends of a copy, open as long as the runner's loop."""

    def __init__(
        self,
        runner: asyncio.Runner,
        source: str | Sequence[str],
        target: str,
        settings: Mapping[str, str] | None,
        options: Options,
    ) -> None:
        self._runner = runner
        self._sources = [source] if isinstance(source, str) else [os.fspath(one) for one in source]
        _check_ends(self._sources, target)
        if options.to_tiered is not None and (is_cluster(target) or backups_of(target) is not None):
            raise IllegalArgument(
                "a tiered store has the closed segments of a data directory", hint="give a data directory as the target"
            )
        if options.tiered is not None and is_cluster(self._sources[0]):
            raise IllegalArgument("a cluster reads its tiered segments itself", hint="omit the tiered store")
        given = dict(settings or {})
        self._source = _open_source(self._sources, given, options)
        try:
            self._target = _open_target(target, given, options)
        except BaseException:
            runner.run(self._source.close())
            raise

    def __enter__(self) -> Ends:
        try:
            self._runner.run(_check_clusters(self._source, self._target))
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def _close(self) -> None:
        try:
            self._runner.run(self._target.close())
        finally:
            self._runner.run(self._source.close())

    @property
    def opened(self) -> tuple[Source, Target]:
        """The source and the target."""
        return self._source, self._target

    def check_growing(self) -> None:
        """Raise IllegalArgument if the source or target is a backup."""
        if isinstance(self._target, BackupTarget) or any(map(is_backup, self._sources)):
            raise IllegalArgument("a backup does not grow: it cannot be followed, or follow", hint="omit --follow")


def _check_ends(sources: Sequence[str], target: str) -> None:
    if not sources or (len(sources) > 1 and any(map(is_cluster, sources))):
        raise IllegalArgument("give one cluster, or data directories, as the source")
    if is_cluster(target) or is_cluster(sources[0]):
        check_packages()
    if is_cluster(target):
        return
    place = backups_of(target) or target
    refuse_to_write(place)
    local = [os.path.realpath(one) for one in sources if not is_cluster(one) and not is_url(one)]
    if local:
        check_places(local, os.path.realpath(place))


async def _check_clusters(source: Source, target: Target) -> None:
    if isinstance(source, ClusterSource) and isinstance(target, ClusterTarget):
        one, other = await source.cluster_id(), await target.cluster_id()
        if one is not None and one == other:
            raise IllegalArgument("the source and the target are the same cluster")


def _client(place: str, side: str, settings: dict[str, str], options: Options) -> ClusterClient:
    peers = peer_settings(settings_for(side, settings))
    return ClusterClient(place, parse_addresses(place), peers, options.is_stopped)


def _open_source(places: Sequence[str], settings: dict[str, str], options: Options) -> Source:
    if is_cluster(places[0]):
        return ClusterSource(_client(places[0], "source", settings, options))
    return open_files(places, options.tiered)


def _open_target(place: str, settings: dict[str, str], options: Options) -> Target:
    if is_cluster(place):
        return ClusterTarget(_client(place, "target", settings, options))
    backups = backups_of(place)
    if options.to_tiered is not None:
        description = read_description(options.to_tiered)
        key_of(description)
        return DirectoryTarget(place, description)
    return DirectoryTarget(place) if backups is None else BackupTarget(backups)
