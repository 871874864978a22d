"""Malformed UTF-8 in the dump tool's text is what Java prints, in a payload, in a key and as the bytes alone."""

from typing import Any

import pytest

from kafkalog._core.text.text_buffer import java_text
from tests.builder import R, batch
from tests.golden_cases import each_entry
from tests.renderers import dump_text

pytestmark = pytest.mark.golden


@each_entry("utf8_replace")
def test_replacement(entry: dict[str, Any]) -> None:
    data = bytes.fromhex(entry["hex"])
    assert java_text(data).decode() == entry["string"]
    made = batch([R(data, data)])
    text = dump_text(data=True)
    text.render(made, 0, len(made), 0)
    assert text.text.take().decode().endswith(f" key: {entry['string']} payload: {entry['string']}\n")
