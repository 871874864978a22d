"""Features that need a missing package say so in one line, with the command that installs it.

Each feature runs in a separate interpreter in which the package cannot be found.
"""

import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from kafkalog.errors import MissingPackage
from tests.trees import PACKAGE

ROOT = Path(__file__).parent.parent
NO_WHEEL = " (it may have no wheel for a Python without the GIL)" if "t" in sys.abiflags else ""
BLOCKED = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, path=None, target=None: None if name in {names!r} else find(name, path, target)
"""
TABLE = """
import kafkalog
with kafkalog.open("t-0", "a") as log:
    log.append([b"one"])
    log.table().to_pandas()
"""
PLOT = """
import kafkalog
with kafkalog.open("t-0", "a") as log:
    log.plot()
"""
BROWSE = """
import kafkalog
with kafkalog.open("t-0", "a") as log:
    log.browse()
"""
DECODER = """
import os
from kafkalog.tools.decoders.named import decoder
os.makedirs("schemas", exist_ok=True)
decoder("{name}", schemas="schemas")
"""
SESSION = """
from kafkalog.spark.session import spark_session
with spark_session("local[1]"):
    pass
"""
EXPORT = """
import kafkalog
from kafkalog.exchange.export import export_records
with kafkalog.open("data/t-0", "a") as log:
    log.append([b"one"])
export_records("data", "out")
"""
SERVED = """
from kafkalog.testing import kafka_server
with kafka_server(directory="data"):
    print("it is ready")
"""
MIRROR = """
from kafkalog.server.client.settings import peer_settings
from kafkalog.server.mirror.running import run_mirror
run_mirror(["data"], [("127.0.0.1", 1)], ["t"], peer_settings({}), once=True)
"""
TOPIC = """
import kafkalog
dirs = kafkalog.open_dirs("data", "a")
dirs.create_topic("t")
"""
SYNC = TOPIC + """
from kafkalog.lake.sync import sync_topic
sync_topic(dirs, "t", "{target}")
"""
TIERED = """
from kafkalog.tiered.keys import KeyRing
from kafkalog.tiered.manifest import Encryption
KeyRing({"key1": "key1.pem"}).decryption(Encryption("key1", b"wrapped", b""))
"""
# feature -> (missing packages, code, extra that has them)
FEATURES = {
    "to_pandas": (["pandas"], TABLE, "pandas"),
    "to_pandas, typed": (["pandas"], TOPIC + 'dirs["t"].to_pandas(["offset"])', "pandas"),
    "plot": (["matplotlib"], PLOT, "viz"),
    "browse": (["textual"], BROWSE, "browse"),
    "spark without pyspark": (["pyspark"], SESSION, "spark"),
    "spark without pyarrow": (["pyarrow"], SESSION, "spark"),
    "spark without pandas": (["pandas"], SESSION, "spark"),
    "a URL": (["fsspec"], 'import kafkalog\nkafkalog.open("memory://data/t-0")', "fs"),
    "encrypted tiered segments": (["cryptography"], TIERED, "tiered"),
    "export": (["pyarrow"], EXPORT, "arrow"),
    "import": (["pyarrow"], 'from kafkalog.exchange.import_ import *\nimport_records([], "data")', "arrow"),
    "testing": (["kio"], SERVED, "server"),
    "mirror": (["kio"], MIRROR, "server"),
    "copy": (["kio"], 'from kafkalog.copy import copy_topics\ncopy_topics("kafka://127.0.0.1:1", "data")', "server"),
    "queue": (["kio"], TOPIC + 'dirs["t"].queue("workers")', "server"),
    "topics by time": (["pyarrow"], TOPIC + 'dirs.scan("t", order="time")', "arrow"),
    "to_polars": (["polars"], TOPIC + 'dirs["t"].to_polars()', "polars"),
    "topics for DuckDB": (["pyarrow"], TOPIC + "kafkalog.duckdb.register(None, dirs)", "sql"),
    "topics for Polars": (["polars"], TOPIC + 'kafkalog.polars.scan(dirs, "t")', "polars"),
    "Iceberg tables": (["pyiceberg"], SYNC.format(target="iceberg:lake/shop.t"), "lake"),
    "Delta tables": (["deltalake"], SYNC.format(target="delta:lake/t"), "lake"),
    "tables of a lakehouse": (["pyarrow"], SYNC.format(target="delta:lake/t"), "lake"),
    "decoder avro": (["fastavro"], DECODER.format(name="avro"), "schemas"),
    "decoder protobuf": (["google.protobuf"], DECODER.format(name="protobuf"), "schemas"),
}
WITH_NUMPY = {
    "a column": "log.table().offsets",
    "an object column": 'log.table()["value"].to_numpy()',
    "stats": "log.stats()",
    "stats of keys": "log.stats(keys=True)",
    "a search": "from kafkalog.browse.search import find_key\nfind_key(log._source, b'k', 0, lambda *_: True)",
    "a bench": "from kafkalog.bench.meter import Latencies\nLatencies()",
}
CODECS = """
import os
import kafkalog
data = b"value " * 5000
for codec in ("gzip", "snappy", "lz4", "zstd"):
    with kafkalog.open(codec + "-0", "a") as log:
        log.append([data], compression=codec)
        assert log[0].value == data
        assert os.path.getsize(log.path + "/00000000000000000000.log") < 20_000
"""


def run_code(code: str, missing: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    script = BLOCKED.format(names=set(missing)) + textwrap.dedent(code)
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}  # the package that is installed may be of another tree
    return subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=env, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("feature", FEATURES)
def test_a_missing_package_is_named_with_its_command(feature: str, tmp_path: Path) -> None:
    missing, code, extra = FEATURES[feature]
    done = run_code(code, missing, tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("kafkalog.errors.MissingPackage: "), done.stderr
    assert last.endswith(f"Hint: pip install 'kafkalog[{extra}]'{NO_WHEEL}")
    assert missing[0].rpartition(".")[2] in last
    assert feature not in ("testing", "mirror") or not (tmp_path / "data").exists()


@pytest.mark.parametrize("what", WITH_NUMPY)
def test_an_installation_without_numpy_says_so_where_it_is_needed(what: str, tmp_path: Path) -> None:
    """It comes with kafkalog, unless that was installed without its dependencies; records are read without it."""
    code = 'import kafkalog\nlog = kafkalog.open("t-0", "a")\nlog.append([(b"k", b"v")])\nassert log[0].value == b"v"\n'
    done = run_code(code + WITH_NUMPY[what], ["numpy"], tmp_path)
    message = [line for line in done.stderr.splitlines() if line.startswith("kafkalog.errors.MissingPackage: ")]
    assert done.returncode == 1 and len(message) == 1, done.stderr
    assert "numpy" in message[0] and message[0].endswith(f"Hint: pip install numpy{NO_WHEEL}")


def test_the_command_line_says_it_in_one_line(tmp_path: Path) -> None:
    code = "import sys\nfrom kafkalog.cli.main import main\nsys.argv = ['kafkalog', 'spark', 'stats', '.']\nmain()"
    done = run_code(code, ["pyspark"], tmp_path)
    assert done.returncode not in (0, 120)
    assert done.stderr.strip().splitlines()[-1].endswith(f"pip install 'kafkalog[spark]'{NO_WHEEL}"), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [("serve", "--listen", "127.0.0.1:0", "--ready-file", "ready"),
     ("mirror", "--from", "127.0.0.1:1", "-t", "t", "--once")],
    ids=["serve", "mirror"],
)  # fmt: skip
def test_a_server_without_its_packages_ends_at_once(words: tuple[str, ...], tmp_path: Path) -> None:
    """In one line, with no directory and no file that says it is ready."""
    arguments = ["kafkalog", *words, "-d", "data"]
    code = f"import sys\nfrom kafkalog.cli.main import main\nsys.argv = {arguments!r}\nmain()"
    done = run_code(code, ["kio"], tmp_path)
    assert done.returncode not in (0, 120)
    line = done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr and "ready" not in done.stdout
    assert "kio" in line and line.endswith(f"pip install 'kafkalog[server]'{NO_WHEEL}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", [["zstandard"], ["deflate"], ["isal"], ["zstandard", "deflate", "isal"]])
def test_codecs_do_without_the_faster_packages(missing: list[str], tmp_path: Path) -> None:
    """Python 3.15 has no zstandard, some machines no isal; deflate is an extra."""
    done = run_code(CODECS, missing, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("flags", ["", "t", "dt"])
def test_without_the_gil_a_missing_wheel_is_named(flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "abiflags", flags)
    said = str(MissingPackage("topics need polars", hint="pip install polars"))
    assert said.endswith("polars (it may have no wheel for a Python without the GIL)" if flags else "install polars")


def test_every_extra_that_is_named_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {extra for _, _, extra in FEATURES.values()}
    assert named <= set(extras)
    assert all(extra in extras["all"][0] for extra in named)


def test_an_unbuilt_tree_names_the_command(tmp_path: Path) -> None:
    """Modules of another interpreter are none for this one, so that is the same case."""
    for path in PACKAGE.rglob("*.py"):
        there = tmp_path / path.relative_to(PACKAGE.parent)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(path.read_bytes())
    message = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-P", "-S", "-c", "import kafkalog; kafkalog.open"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 1
        message.append(done.stderr.strip().splitlines()[-1])
        (tmp_path / "kafkalog" / "_version.py").unlink(missing_ok=True)
    missing, never_built = message
    assert missing.startswith("ImportError: kafkalog's compiled modules are not there for cpython 3.")
    assert missing.endswith("setup.py build_ext --inplace")
    assert never_built.startswith("ImportError: this source tree of kafkalog was not built")
    assert all("Hint: pip install kafkalog" in one for one in message)
