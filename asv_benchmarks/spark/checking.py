"""The bar of the job verify: twice the cores in little more than half the time."""

import os
import statistics
from pathlib import Path

from asv_benchmarks.measure import Row
from asv_benchmarks.spark.contest import Spent, race
from asv_benchmarks.spark.session import session

VERIFY_BAR = 1.8
CORES = (1, 2)
TIMES = 16
"""So many directories have each partition's files: what is measured is to be the work, not Spark's start of a job."""


def verify_bars(data: Path, scratch: Path) -> list[Row]:
    """Return the speed of a deep verify of a large tree with two cores over one; other programs may use the second."""
    tree = _multiplied(data, scratch / "tree")
    spent = {cores: _verified(tree, scratch, cores) for cores in CORES}
    one, two = (statistics.median(spent[cores].wall) for cores in CORES)
    cpu = " and ".join(f"{statistics.median(spent[cores].cpu):.1f}" for cores in CORES)
    remark = f"{one:.2f} s on one core, {two:.2f} s on two; CPU {cpu} s"
    return [Row("job verify, two cores by one", one / two, VERIFY_BAR, "x", remark=remark)]


def _multiplied(data: Path, tree: Path) -> Path:
    """Return a data directory with every partition many times, under other numbers, by links to the same files."""
    tree.mkdir()
    for partition in sorted(path for path in data.glob("rows*-[0-9]*") if path.is_dir()):
        topic, _, number = partition.name.rpartition("-")
        for time in range(TIMES):
            target = tree / f"{topic}-{int(number) * TIMES + time}"
            target.mkdir()
            for file in partition.iterdir():
                if file.name != "partition.metadata":
                    os.link(file, target / file.name)
    return tree


def _verified(data: Path, scratch: Path, cores: int) -> Spent:
    from kafkalog.spark.jobs.verify import verify

    with session(scratch, cores=cores, kafka=False) as spark:
        return race({"verify": lambda: verify(spark, str(data), deep=True)})["verify"]
