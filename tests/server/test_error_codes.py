"""The error codes are those of the protocol, by an enumeration that another project took from Kafka's sources."""

from __future__ import annotations

import pytest

from kafkalog.server.error_codes import ErrorCode

kio = pytest.importorskip("kio.schema.errors")


NEWEST_OF_KIO = 133


@pytest.mark.parametrize("code", [one for one in ErrorCode if one <= NEWEST_OF_KIO], ids=lambda code: code.name)
def test_a_code_has_the_number_of_its_name(code: ErrorCode) -> None:
    assert kio.ErrorCode[code.name.lower()] == code
