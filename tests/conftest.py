"""What every test may use: the golden capture's cleaning up, and property tests without deadlines."""

from collections.abc import Iterator

import hypothesis
import pytest

from tests import golden_cases

hypothesis.settings.register_profile(
    "kafkalog", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("kafkalog")


@pytest.fixture(scope="session", autouse=True)
def _golden_scratch() -> Iterator[None]:
    """Extracted archives live for one session."""
    yield
    golden_cases.close_scratch()
