"""Metrics that a client pushes (KIP-714) over a link: which requests are taken, and what each is answered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from kafkalog.records.compression import compress
from kafkalog.records.format import CompressionType
from tests.interop.client_metrics_conversation import CLIENT_METRICS, SET
from tests.interop.group_members import LIMIT_S
from tests.interop.share_calls import Link

MAX_BYTES: Final = 2000
NONE, ZSTD = int(CompressionType.NONE), int(CompressionType.ZSTD)
LONG_MS: Final = 3_600_000
_THROTTLED: Final = 89


def conversation(bootstrap: str) -> Iterator[tuple[Any, ...]]:
    """What each request is answered. The link's client id is `test`."""
    with Link(bootstrap) as link:
        yield "offered", [(one.api_key, one.min_version, one.max_version)
                          for one in link.ask("api_versions", 2, {}).api_keys if one.api_key in (71, 72)]  # fmt: skip
        found = _asked(link, None)
        yield "no subscription", found[0], found[2:4], found[4:]
        assert found[1] not in (None, UUID(int=1))
        _subscribe(link, "other", metrics="nothing", match="client_id=tes")
        _subscribe(link, "mine", metrics="org.", match="client_id=te.t", **{"interval.ms": str(LONG_MS)})
        one = _told_of(link, "org.")
        yield "asked", _asked(link, one)
        yield "pushed with another number", _pushed(link, one, 1)
        yield "asked after that", _asked(link, one), _pushed(link, one, 1), _asked(link, one)
        one = UUID(int=4 << 64 | 1)
        number = _number(link, one)
        yield "pushed", _pushed(link, one, number, bytes(compress(ZSTD, b"first")), ZSTD)
        yield "too early", _pushed(link, one, number, b"early"), _asked(link, one)
        yield "the last", _pushed(link, one, number, b"last", is_last=True)
        yield "after the last", _pushed(link, one, number, b"again"), _pushed(link, one, number, b"?", is_last=True)
        yield "no id", _pushed(link, None, 0), _pushed(link, UUID(int=1), 0)
        yield "unknown id", _pushed(link, UUID(int=77), 0)
        yield from _payloads(link)
        yield from _changes(link)


def _payloads(link: Link) -> Iterator[tuple[Any, ...]]:
    """Each from another client instance, as the next push of one would be too early."""
    zeros, noise = bytes(50_000), bytes(range(256)) * 7
    cases = [(f"codec {codec}", codec, bytes(compress(codec, b"of codec %d" % codec))) for codec in CompressionType]
    cases += [("unknown codec", codec, b"x") for codec in (5, 127, -1)]
    cases += [("damaged", codec, b"no such thing") for codec in CompressionType if codec]
    cases += [("as large as may be", NONE, noise.ljust(MAX_BYTES)), ("larger", NONE, noise.ljust(MAX_BYTES + 1))]
    cases += [("a bomb", codec, bytes(compress(codec, zeros))) for codec in CompressionType if codec]
    cases += [("nothing", NONE, b"")]
    for position, (what, codec, data) in enumerate(cases, 1000):
        one = UUID(int=position << 64 | 5)
        number = _number(link, one)
        yield what, codec, _pushed(link, one, number, data, codec), _asked(link, one)


def _changes(link: Link) -> Iterator[tuple[Any, ...]]:
    one = UUID(int=9 << 64)
    number = _number(link, one)
    _subscribe(link, "all", metrics="*", **{"interval.ms": "500"})
    _told_of(link, "*")
    yield "pushed after a change", _pushed(link, one, number)
    answer = _asked(link, one)
    number = answer[-1]
    yield "asked after a change", answer, _pushed(link, one, number, b"of the changed one")
    time.sleep(0.6)
    yield "after the interval", _pushed(link, one, number, b"after the interval")
    _subscribe(link, "all", metrics=None, **{"interval.ms": None})
    _told_of(link, "org.")
    yield "asked after the subscription is gone", _asked(link, one)


def _asked(link: Link, one: UUID | None) -> tuple[Any, ...]:
    answer = link.ask("get_telemetry_subscriptions", 0, {"client_instance_id": one})
    return (
        answer.error_code, answer.client_instance_id, answer.push_interval, answer.requested_metrics,
        answer.accepted_compression_types, answer.telemetry_max_bytes, answer.delta_temporality,
        None if one is None else answer.subscription_id,
    )  # fmt: skip


def _number(link: Link, one: UUID) -> int:
    return int(_asked(link, one)[-1])


def _pushed(
    link: Link, one: UUID | None, number: int, data: bytes = b"x", codec: int = NONE, *, is_last: bool = False
) -> int:
    tree = {
        "client_instance_id": one, "subscription_id": number, "terminating": is_last, "compression_type": codec,
        "metrics": data,
    }  # fmt: skip
    return int(link.ask("push_telemetry", 0, tree).error_code)


def _subscribe(link: Link, name: str, **settings: str | None) -> None:
    rows = [
        {"name": key, "config_operation": SET if value else 1, "value": value} for key, value in settings.items()
    ]
    resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configs": rows}
    answer = link.ask("incremental_alter_configs", 1, {"resources": [resource], "validate_only": False})
    assert answer.responses[0].error_code == 0, answer


def _told_of(link: Link, metrics: str) -> UUID:
    """Wait until a client is asked for these metrics, as a broker sees a change some time later.

    Return an id that no client has.
    """
    deadline = time.monotonic() + LIMIT_S
    while _asked(link, None)[3] != (metrics,):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return UUID(int=3 << 64 | 1)
