"""docs/server.md lists every call of a broker of 4.4 with the versions that are served here."""

from __future__ import annotations

import re

from kafkalog.server.wire.versions import ALONE
from tests.trees import SOURCES

ROW = re.compile(r"\| (\d+) \| (\w+) \| (-|[\d-]+) \| (-|\d[\d-]*) \| (.+) \|")
OF_A_4_4_BROKER = {
    *range(4), *range(8, 52), 55, 57, 60, 61, 64, 65, 66, 68, 69, 71, 72, *range(74, 82), *range(83, 95),
}  # fmt: skip
"""What ApiVersions of a broker of 4.4.0 has, and the two calls of telemetry, which need a plug-in to be offered."""


def versions(lowest: int, highest: int) -> str:
    return f"{lowest}" if lowest == highest else f"{lowest}-{highest}"


def test_every_call_is_in_the_list() -> None:
    text = (SOURCES / "docs" / "server.md").read_text(encoding="utf-8")
    table = text.partition("\n## Calls\n")[2].partition("\n## ")[0]
    rows = {int(match[1]): match for match in ROW.finditer(table)}
    assert rows.keys() == OF_A_4_4_BROKER
    served = {key: match[4] for key, match in rows.items() if match[4] != "-"}
    assert served == {key: versions(api.oldest, api.newest) for key, api in ALONE.items()}
    for key, api in ALONE.items():
        assert rows[key][2].lower() == api.name.replace("_", "")
        assert rows[key][3] == rows[key][4], f"{api.name}: a broker of 4.4 has other versions"
