"""The options of a Java that is to start soon, not to run for long: with Spark's classes from an archive.

And the settings of a Spark that has few rows.
"""

import functools
import os
import subprocess
import sys
from pathlib import Path

from tests.interop import toolchain

PLAIN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Without these Spark compiles Java for each query, which takes longer than few rows do; in ci/demo.sh it does."""
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


def submitted(options: str = "") -> str:
    """Return `PYSPARK_SUBMIT_ARGS` of a session in another process."""
    # a busy machine starts a Python process slowly
    conf = {"spark.python.authenticate.socketTimeout": "120s", **INTERPRETED}
    return " ".join((options, *(f"--conf {name}={value}" for name, value in conf.items()), "pyspark-shell"))


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
