"""Records that a broker would delete at once: no handover deletes records without consent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafkalog._core.log.state import LogState
from kafkalog.config.broker import BROKER_TABLE, BrokerConfig
from kafkalog.config.topic import LogConfig
from kafkalog.errors import UnknownConfig
from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.retention import beyond_size, deletable
from kafkalog.tools.handover.plan import HandoverPlan
from kafkalog.util.fileio import FileSystem

if TYPE_CHECKING:
    from kafkalog.storage.readonly.segment import ViewSegment

NO_LIMIT: Final = {"retention.ms": "-1", "retention.bytes": "-1"}


def broker_defaults(plan: HandoverPlan, given: Mapping[str, object]) -> BrokerConfig:
    """Return the settings of topics that set none: Kafka's defaults, then `given`, then the broker's dynamic settings.

    ConfigError for an invalid `given` setting; dynamic settings that do not concern logs are ignored.
    """
    dynamic = {}
    for name, value in plan.metadata.image.broker_settings(plan.node.node_id).items():
        try:
            BROKER_TABLE.find(name)
        except UnknownConfig:
            continue
        dynamic[name] = value
    return BrokerConfig.from_mapping({**given, **dynamic})


def guard_records(
    plan: HandoverPlan, defaults: BrokerConfig, now_ms: int, fs: FileSystem, *, keep: bool, let_expire: bool
) -> None:
    """Add a problem if the broker would delete records at once, unless `keep` or `let_expire` allows it.

    keep: such topics get no limit of age and size; let_expire: they may be deleted, and a note lists them.
    """
    for at, topic in enumerate(plan.topics):
        if topic.action == "known":
            continue
        own_settings = topic.settings if topic.action == "new" else plan.metadata.image.topic_settings(topic.name)
        config = defaults.log_config(own_settings)
        expiring = []
        for one in topic.found:
            end = expiring_before(one.path, config, now_ms, fs)
            if end is not None and end > one.start_offset:
                expiring.append(f"{one.topic_partition} below offset {end:,}")
        if not expiring:
            continue
        what = (
            f"{', '.join(expiring)}: the broker will delete these records after its start "
            f"(retention.ms={config.retention_ms}, retention.bytes={config.retention_bytes})"
        )
        if keep and topic.action == "new":
            plan.topics[at] = replace(topic, settings={**topic.settings, **NO_LIMIT})
            plan.notes.append(f"{topic.name} gets retention.ms=-1 and retention.bytes=-1, so that nothing expires")
        elif let_expire:
            plan.notes.append(what)
        else:
            plan.refuse(
                what,
                "--keep-records disables the retention of such topics, --let-expire allows the deletion; "
                "-X log.retention.ms=N gives another default, of the broker's server.properties",
            )


def expiring_before(path: str, config: LogConfig, now_ms: int, fs: FileSystem) -> int | None:
    """Return the offset below which a broker with these settings deletes records; None if it deletes none.

    It deletes complete segments, oldest first, by age and by size: `retention.ms` and `retention.bytes` (LOG-39,
    LOG-40).
    """
    if not config.delete:
        return None
    with LogView(path, fs=fs) as view:
        state = LogState(
            view.segments,
            log_start_offset=view.log_start_offset,
            log_end_offset=view.log_end_offset,
            end_base=view.active_segment.base_offset,
            end_position=view.active_segment.size,
            high_watermark=view.log_end_offset,
        )

        def is_old(segment: ViewSegment, _: object) -> bool:
            stamp = segment.largest_timestamp
            return bool(now_ms - (stamp if stamp >= 0 else segment.records.last_modified_ms()) > config.retention_ms)

        old = deletable(state, is_old) if config.retention_ms >= 0 else ()
        deleted = max(old, beyond_size(state, config), key=len)
        if not deleted:
            return None
        following = view.segments.higher(deleted[-1].base_offset)
        return view.log_end_offset if following is None else following.base_offset
