"""The bar of the job verify: twice the cores in little more than half the time."""

import statistics
from pathlib import Path

from asv_benchmarks.spark.contest import Bar, Spent, race
from asv_benchmarks.spark.session import session

VERIFY_BAR = 1.8
CORES = (1, 2)


def verify_bars(data: Path, scratch: Path) -> list[Bar]:
    """The whole tree, deep, in a session of one core and in one of two: with others about, the second may be theirs."""
    spent = {cores: _verified(data, scratch, cores) for cores in CORES}
    one, two = (statistics.median(spent[cores].wall) for cores in CORES)
    cpu = " and ".join(f"{statistics.median(spent[cores].cpu):.1f}" for cores in CORES)
    told = f"{one:.2f} s on one core, {two:.2f} s on two; CPU {cpu} s"
    return [Bar("job verify, two cores by one", one / two, VERIFY_BAR, told=told)]


def _verified(data: Path, scratch: Path, cores: int) -> Spent:
    from kafkalog.spark.jobs.verify import verify

    with session(scratch, cores=cores, kafka=False) as spark:
        return race({"verify": lambda: verify(spark, str(data), deep=True)})["verify"]
