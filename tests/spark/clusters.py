"""Spark clusters on this host, and the Pythons that their machines would have: for the tests of clusters only."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path

from kafkalog import __version__
from kafkalog.spark.archive import own_files
from tests.spark.quick_java import INTERPRETED, quick_java
from tests.trees import PACKAGE, ROOT, WHEEL

OURS = re.compile(r"kafkalog|pyspark_kafkalog|__editable__|.*\.(pth|egg-link)$")
DEADLINE_S = 120
JOB_S = 900
"""What no job takes on a machine that does much else beside; only what hangs does."""
IMPORTED = os.pathsep.join(dict.fromkeys(map(str, (ROOT, PACKAGE.parent))))
"""What a driver has in PYTHONPATH that has the tests and the package."""


def quick() -> tuple[str, ...]:
    """The settings of every driver here."""
    java = quick_java()
    return (
        "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1", "spark.ui.enabled=false",
        "spark.python.authenticate.socketTimeout=120s",  # a busy machine starts a Python process slowly
        "spark.sql.shuffle.partitions=1", f"spark.driver.extraJavaOptions={java}",
        f"spark.executor.extraJavaOptions={java}", *(f"{name}={value}" for name, value in INTERPRETED.items()),
    )  # fmt: skip


def plain_python(directory: Path) -> Path:
    """A Python as another machine has it: everything that is installed here but this package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (target,) = directory.glob("lib/python*/site-packages")
    for one in Path(str(metadata.distribution("numpy").locate_file(""))).iterdir():
        if not OURS.match(one.name):
            (target / one.name).symlink_to(one)
    return directory / "bin" / "python"


def install_wheel(python: Path, scratch: Path) -> None:
    """Puts the package into a Python from the wheel that is tested, or from one of what is built in this tree."""
    made = WHEEL or build_wheel(scratch)
    (target,) = python.parents[1].glob("lib/python*/site-packages")
    with zipfile.ZipFile(made) as archive:
        archive.extractall(target)


def build_wheel(scratch: Path) -> Path:
    """A wheel of what is built in this tree."""
    built = scratch / "built"
    for path, name in own_files():
        (built / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, built / name)
    # the driver's own version, whatever was committed since it was built: the probe of executors compares the two
    settings = scratch / "wheel.cfg"
    settings.write_text(f"[build]\nbuild_lib = {built}\n[egg_info]\negg_base = {scratch}\n")
    env = {**os.environ, "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_KAFKALOG": __version__, "DIST_EXTRA_CONFIG": str(settings)}
    wheel = ["bdist_wheel", "--skip-build", "--dist-dir", str(scratch), "--bdist-dir", str(scratch / "bdist")]
    wheel += ["--compression", "stored"]  # it is unpacked at once
    subprocess.run([sys.executable, "setup.py", *wheel], cwd=ROOT, env=env, capture_output=True, check=True)
    (made,) = scratch.glob("*.whl")
    return made


def environment(python: Path, scratch: Path) -> dict[str, str]:
    """The surroundings of a program on such a machine; this source tree is nowhere in them."""
    import pyspark

    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG", "HOME") if name in os.environ}
    spark = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_LOCAL_IP": "127.0.0.1"}
    daemons = {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{quick_java()} -Dspark.master.rest.enabled=false",
    }
    return {**kept, **spark, **daemons, "PYSPARK_PYTHON": str(python), "TMPDIR": str(scratch)}


def end_group(program: "subprocess.Popen[bytes]") -> None:
    """Ends a program and all that it started: asked first, so that a worker ends its executors."""
    if program.poll() is None:
        program.terminate()
        try:
            program.wait(20)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    program.wait()


@contextmanager
def running(
    line: list[str], env: dict[str, str], log: Path, out: Path | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """A program in a separate process group, which ends with the block, whatever happens in it."""
    with log.open("wb") as errors, (out or log).open("ab") as output:
        program = subprocess.Popen(
            line, env=env, cwd=log.parent, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield program
    finally:
        end_group(program)


def awaited(log: Path, pattern: str, program: "subprocess.Popen[bytes]") -> str:
    """Return the first match of a pattern in a program's log, once it is written."""
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return found[0]
        if program.poll() is not None:
            break
        time.sleep(0.05)
    raise AssertionError(f"{log} never said {pattern!r}:\n{log.read_text(errors='replace')[-4000:]}")


@contextmanager
def standalone(scratch: Path, python: Path, workers: int) -> Iterator[str]:
    """The URL of a master with so many workers of one core each, on machines that have `python`.

    Each worker has an address of its own on the loopback: Spark runs no task twice at once on one host.
    """
    env = environment(python, scratch)
    deploy = [f"{env['SPARK_HOME']}/bin/spark-class", "org.apache.spark.deploy.master.Master"]
    ports = ["--port", "0", "--webui-port", "0"]
    with ExitStack() as stack:
        log = scratch / "master.log"
        master = stack.enter_context(running([*deploy, "--host", "127.0.0.1", *ports], env, log))
        url = awaited(log, r"spark://127\.0\.0\.1:\d+", master)
        deploy[1] = "org.apache.spark.deploy.worker.Worker"
        logs = [scratch / f"worker{number}.log" for number in range(workers)]
        sizes = ["--cores", "1", "--memory", "1g", "--work-dir"]
        lines = [
            [*deploy, "--host", f"127.0.0.{number}", *ports, *sizes, str(log.with_suffix("")), url]
            for number, log in enumerate(logs, 1)
        ]
        started = [
            stack.enter_context(running(line, {**env, "SPARK_LOCAL_IP": line[3]}, log))
            for line, log in zip(lines, logs, strict=True)
        ]
        for log, worker in zip(logs, started, strict=True):
            awaited(log, "Successfully registered with master", worker)
        yield url
