"""A topic into an Iceberg table: by the job `sync`, and by Spark's own writer from kafkalog's source and from Kafka's.

Spark with Iceberg is 4.1, in packages of its own (tests/interop/lakehouse.py), so the session is another process:

    python -m asv_benchmarks.spark.tables ROOT DATA BOOTSTRAP TOPIC ROUNDS
"""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

from asv_benchmarks.measure import Row
from asv_benchmarks.spark import contest
from asv_benchmarks.spark.queries import KAFKA, OURS
from asv_benchmarks.spark.topics import Topic
from tests.interop import toolchain
from tests.trees import ROOT

COLUMNS = ("partition", "offset", "key", "value", "timestamp")
TABLE = "`default`.shop.rows"
JOB = "kafkalog spark sync"


def table_bars(data: Path, bootstrap: str, topic: Topic, work: Path) -> list[Row]:
    """Batches of all rows of a topic, each into a new table."""
    python, _ = toolchain.lakehouse()
    root = work / "tables"
    for name in ("lake", "local"):
        (root / name).mkdir(parents=True)
    env = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    env |= {
        "PYTHONPATH": os.pathsep.join(map(str, (python, ROOT))), "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    given = (root, data, bootstrap, topic.name, contest.ROUNDS)
    line = [sys.executable, "-m", "asv_benchmarks.spark.tables", *map(str, given)]
    subprocess.run(line, env=env, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    found = json.loads((root / "spent.json").read_text())
    spent = {name: contest.Spent(*one) for name, one in found.items()}
    work_done = f"a topic of {topic.partitions} partitions to Iceberg"
    return [
        contest.ratio_bar(f"{work_done}, the job", spent, KAFKA, 2, topic.rows, JOB),
        contest.ratio_bar(work_done, spent, KAFKA, 2, topic.rows),
    ]


def main(root: Path, data: str, bootstrap: str, topic: str, rounds: int) -> None:
    from pyspark.sql import SparkSession

    from kafkalog.spark.jobs.sync import sync
    from tests.interop.lakehouse_driver import settings

    _, tables = toolchain.lakehouse()
    class_path = os.pathsep.join(map(str, (*tables, *toolchain.spark_jars())))
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings(root, class_path, "").items():
        builder = builder.config(name, value)
    spark = builder.config("spark.driver.memory", "2g").getOrCreate()
    spark.sql("CREATE NAMESPACE IF NOT EXISTS `default`.shop")

    def ours() -> None:
        options = {"subscribe": topic, "columns": ",".join(COLUMNS)}
        frame = spark.read.format("kafkalog").options(**options).load(data)
        frame.select(*COLUMNS).writeTo(TABLE).using("iceberg").createOrReplace()

    def kafka() -> None:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        frame = spark.read.format("kafka").options(**options).load()
        frame.select(*COLUMNS).writeTo(TABLE).using("iceberg").createOrReplace()

    numbers = itertools.count()

    def job() -> None:
        project = {name: name for name in COLUMNS}
        target = f"iceberg:{root}/lake/shop.job{next(numbers)}"
        sync(spark, data, topic, target, project=project)

    def count(name: str) -> int:
        return spark.table(name).count()

    ours()
    written = count(TABLE)
    kafka()
    job()
    assert count(TABLE) == count("`default`.shop.job0") == written, "the tables differ"
    spent = contest.race({JOB: job, OURS: ours, KAFKA: kafka}, rounds)
    (root / "spent.json").write_text(json.dumps({name: [one.wall, one.cpu] for name, one in spent.items()}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:5], int(sys.argv[5]))
