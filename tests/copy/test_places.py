"""Client settings of the two sides of a copy."""

import pytest

from kafkalog.copy.places import settings_for
from kafkalog.errors import UnknownConfig


def test_settings_of_one_side() -> None:
    given = {"source.a": "1", "target.a": "2", "socket.b": "3"}
    assert settings_for("source", given) == {"client.id": "kafkalog-copy", "a": "1", "socket.b": "3"}
    assert settings_for("target", given) == {"client.id": "kafkalog-copy", "a": "2", "socket.b": "3"}


@pytest.mark.parametrize(("name", "meant"), [("sorce.security.protocol", "source"), ("targets.acks", "target")])
def test_a_prefix_with_a_typing_error_is_refused(name: str, meant: str) -> None:
    with pytest.raises(UnknownConfig, match=name) as caught:
        settings_for("source", {name: "SSL"})
    assert caught.value.hint == f"did you mean the prefix {meant}?"
