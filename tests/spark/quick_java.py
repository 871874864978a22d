"""The options of a Java that is to start soon, not to run for long: with Spark's classes from an archive."""

import functools
import os
import subprocess
import sys
from pathlib import Path

from tests.interop import toolchain

PLAIN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
TRAIN_S = 600
JOB = """
import sys
from pyspark import SparkContext
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", sys.argv[1])
for name, value in {"ui.enabled": "false", "driver.host": "127.0.0.1", "driver.bindAddress": "127.0.0.1"}.items():
    builder = builder.config(f"spark.{name}", value)
session = builder.getOrCreate()
session.range(100).selectExpr("id % 7 as k", "id").groupBy("k").count().collect()
session.sparkContext.parallelize(range(4), 2).map(str).collect()
session.stop()
gateway = SparkContext._gateway
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


@functools.cache
def quick_java() -> str:
    """Return `spark.driver.extraJavaOptions`; a user's first call runs a small job to build the archive."""
    import pyspark

    def train(archiving: tuple[str, ...]) -> None:
        subprocess.run(
            [sys.executable, "-c", JOB, " ".join((PLAIN, *archiving))], check=True, timeout=TRAIN_S, cwd=os.sep,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip

    spark = Path(pyspark.__file__).parent
    home = f"{os.environ.get('JAVA_HOME')} {spark} {pyspark.__version__}"
    return " ".join((PLAIN, *toolchain.class_archive("spark", home, train, (spark / "jars").iterdir())))
