"""docs/config.md lists every setting, with the default and the range that count."""

import re
from pathlib import Path

from kafkalog.config.broker import BROKER_CONFIGS, REFUSED
from kafkalog.config.keys import Key, value_text
from kafkalog.config.topic import CONFIGS

TEXT = (Path(__file__).parent.parent / "docs" / "config.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([a-z0-9.]+)` \| (.*) \|$", re.MULTILINE)


def default_of(key: Key) -> str:
    text = "unset" if key.default is None else value_text(key.default) or "empty"
    return "2^63-1" if text == str(2**63 - 1) else text


def rows(heading: str) -> dict[str, list[str]]:
    part = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    return {name: rest.split(" | ") for name, rest in ROW.findall(part)}


def test_every_row_is_there_and_right() -> None:
    for heading, keys in (("Of a topic", CONFIGS), ("Of a store", BROKER_CONFIGS)):
        documented = rows(heading)
        assert list(documented) == [key.name for key in keys]
        for key in keys:
            takes = key.check.text if key.check else key.kind
            change = ["yes" if key.dynamic else ""] if keys is BROKER_CONFIGS else []
            assert documented[key.name] == [default_of(key), takes, *change, key.doc], key.name
    assert {name: rest[0] for name, rest in rows("Refused, with the reason").items()} == REFUSED
