"""Client metrics subscriptions (KIP-714) over a link: accepted changes, and the answers about them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from tests.interop.share_calls import Link

CLIENT_METRICS: Final = 16
SET, DELETE, APPEND, SUBTRACT = range(4)
CHANGES: Final[tuple[tuple[str, tuple[tuple[str, int, str | None], ...]], ...]] = (
    ("m", (("interval.ms", SET, "1000"),)),
    ("m", (("metrics", SET, "org.apache.kafka.,x"), ("match", SET, "client_id=a, client_software_name=b.*"))),
    ("m", (("metrics", APPEND, "y,x"),)),
    ("m", (("metrics", SUBTRACT, "x"),)),
    ("new", (("metrics", APPEND, "only"),)),
    ("new", (("metrics", SUBTRACT, "only"),)),
    ("m", (("interval.ms", APPEND, "1"),)),
    ("m", (("nope", APPEND, "1"),)),
    ("m", (("nope", SET, "1"),)),
    ("m", (("nope", DELETE, None),)),
    ("gone", (("match", DELETE, None),)),
    *(("m", (("interval.ms", SET, text),)) for text in ("50", "100", "3600000", "3600001", "abc", "", " 200 ", None)),
    *(
        ("m", (("match", SET, text),)) for text in (
            "nope", "nope=1", "client_id=[", "client_id=a=b", "client_id=", "=a", " client_id = a ", "client_id=a,,",
            "client_id=a,client_id=b", "client_id=a,client_id=a", "client_source_port=\\d+",
            "client_instance_id=(?<n>a)",
        )
    ),
    *(("m", (("metrics", SET, text),)) for text in ("*", "", "a,a", "a,,b", "a, b", " ", None)),
    ("m", (("interval.ms", SET, "1000"), ("interval.ms", SET, "2000"))),
    ("", (("interval.ms", SET, "1000"),)),
    ("a b/c", (("interval.ms", SET, "1000"),)),
)  # fmt: skip
"""Changes, each by one request: the subscription, and its settings with operation and value."""


def conversation(bootstrap: str) -> Iterator[tuple[Any, ...]]:
    """Yield each call's answer: codes, messages, settings with values and sources, resources."""
    with Link(bootstrap) as link:
        yield "none", _described(link, "m"), _described(link, ""), _listed(link, 0)
        for name, changes in CHANGES:
            rows = [
                {"name": key, "config_operation": operation, "value": value} for key, operation, value in changes
            ]
            resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configs": rows}
            for only in (True, False):
                answer = link.ask("incremental_alter_configs", 1, {"resources": [resource], "validate_only": only})
                yield name, changes, only, _rows(answer.responses)
            _wait_for_changes(link)
            yield name, [one[:4] for one in _described(link, name)[2]]
        yield "full", _described(link, "m", with_all=True), _listed(link, 0), _listed(link, 1, CLIENT_METRICS)
        yield "some", _described(link, "m", "match", "nope")
        for given in ({"interval.ms": "5000"}, {"nope": "1"}, {"interval.ms": "1"}, {"match": None}, {}):
            configs = [{"name": key, "value": value} for key, value in given.items()]
            resource = {"resource_type": CLIENT_METRICS, "resource_name": "m", "configs": configs}
            answer = link.ask("alter_configs", 2, {"resources": [resource], "validate_only": False})
            _wait_for_changes(link)
            yield "all", given, _rows(answer.responses), [one[:4] for one in _described(link, "m")[2]]
        yield "left", _listed(link, 1, CLIENT_METRICS)
        keys = {one.api_key for one in link.ask("api_versions", 2, {}).api_keys}
        yield "telemetry", sorted(keys & {71, 72, 74})


def _wait_for_changes(link: Link) -> None:
    """Change another subscription and wait until that is seen: a broker shows changes in order, some time later."""
    now = next((one[1] for one in _described(link, "marker")[2] if one[0] == "interval.ms"), None)
    wanted = str(int(now or 1000) % 100_000 + 1000)
    row = {"name": "interval.ms", "config_operation": SET, "value": wanted}
    resource = {"resource_type": CLIENT_METRICS, "resource_name": "marker", "configs": [row]}
    answer = link.ask("incremental_alter_configs", 1, {"resources": [resource], "validate_only": False})
    assert answer.responses[0].error_code == 0
    while not any(one[:2] == ("interval.ms", wanted) for one in _described(link, "marker")[2]):
        time.sleep(0.01)


def _rows(answers: Any) -> list[tuple[int, str | None, str]]:
    return [(one.error_code, one.error_message, one.resource_name) for one in answers]


def _described(link: Link, name: str, *keys: str, with_all: bool = False) -> tuple[int, str | None, list[Any]]:
    resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configuration_keys": keys or None}
    tree = {"resources": [resource], "include_synonyms": with_all, "include_documentation": with_all}
    [row] = link.ask("describe_configs", 4, tree).results
    shown = []
    for one in sorted(row.configs, key=lambda config: str(config.name)):
        synonyms = [(other.name, other.value, other.source) for other in one.synonyms]
        shown.append(
            (one.name, one.value, one.config_source, one.read_only, one.is_sensitive, one.config_type, synonyms,
             one.documentation is None)
        )  # fmt: skip
    return row.error_code, row.error_message, shown


def _listed(link: Link, version: int, *kinds: int) -> list[tuple[str, int]]:
    tree = {"resource_types": list(kinds)} if version else {}
    answer = link.ask("list_config_resources", version, tree)
    return sorted((one.resource_name, getattr(one, "resource_type", CLIENT_METRICS)) for one in answer.config_resources)
