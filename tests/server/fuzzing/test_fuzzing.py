"""A sample of ci/fuzz_server.sh, without sanitizers: requests that were recorded and made wrong."""

import asyncio
from pathlib import Path

import pytest

from tests.server.fuzzing.driver import Driver, Finding, Limits
from tests.server.fuzzing.served import Served
from tests.trees import ROOT
from tests.wire_cases import FILES


@pytest.mark.skipif(not FILES, reason="no recorded requests to start from")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_outlives_mutated_requests_and_serves_others(workers: int, tmp_path: Path) -> None:
    served = Served(tmp_path, ROOT, {}, workers)
    try:
        served.start()
        driver = Driver(served, 11, Limits(rss_mb=150 * workers, answer_s=30))
        asyncio.run(driver.run(2500, 1250))
        assert not driver.figures.tracebacks, served.log()[-6000:]
        assert driver.figures.answered > 250 and driver.figures.closed > 250
        assert served.stop() == 0
    finally:
        if served.is_alive:
            served.stop()


def test_the_driver_sees_a_server_that_grows_fails_or_ends(tmp_path: Path) -> None:
    served = Served(tmp_path, ROOT, {})
    try:
        served.start()
        driver = Driver(served, 11, Limits(rss_mb=150, answer_s=30))
        driver.look()
        with served.log_path.open("a") as log:
            log.write("Traceback (most recent call last):\n  File x\nValueError: a finding\n")
        driver.look()
        assert driver.figures.tracebacks == {"ValueError: a finding": 1}
        with pytest.raises(Finding, match="MB"):
            Driver(served, 11, Limits(rss_mb=1, answer_s=30)).look()
        assert served.process is not None
        served.process.kill()
        served.process.wait()
        with pytest.raises(Finding, match="the server ended"):
            driver.look()
    finally:
        if served.is_alive:
            served.stop()
