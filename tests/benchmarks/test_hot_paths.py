"""Every hot path runs, has a slowdown to be caught by, and asv takes the benchmarks."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from asv_benchmarks.counting import callgrind, process
from asv_benchmarks.counting.meter import Meter, compile_meter
from asv_benchmarks.hot_paths.all import PATHS
from asv_benchmarks.hot_paths.path import PROFILE_VARIABLE, made, profile
from asv_benchmarks.planted.__main__ import PLANTS, grouped, tried
from asv_benchmarks.planted.plant import Plant
from tests.trees import SOURCES

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", PATHS)
def test_a_hot_path_does_the_same_number_of_items_each_time(name: str, tmp_path: Path) -> None:
    for module in ("pyarrow",) if PATHS[name].noun in ("columns", "values") or "Arrow" in name else ():
        pytest.importorskip(module)
    with made(PATHS[name], full=False, directory=tmp_path / "hot") as work:
        items = {work(), work()}
    assert len(items) == 1 and items.pop() > 0


def test_the_profile_is_one_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROFILE_VARIABLE, raising=False)
    assert profile() == "quick"
    monkeypatch.setenv(PROFILE_VARIABLE, "slow")
    with pytest.raises(ValueError, match="quick and full"):
        profile()


def test_every_hot_path_has_a_slowdown_and_each_still_has_its_line(tmp_path: Path) -> None:
    assert {plant.path for plant in PLANTS} == set(PATHS)
    assert {name for plant in PLANTS for name in plant.also} <= set(PATHS)
    for plant in PLANTS:
        copy = tmp_path / plant.file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((SOURCES / "kafkalog" / plant.file).read_text())
        changed = plant.plant(tmp_path).read_text()
        if copy.suffix == ".py":
            compile(changed, plant.file, "exec")


def test_a_slowdown_whose_line_is_gone_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    for line, times in (("x = 1", 2), ("y = 1", 0)):
        with pytest.raises(ValueError, match=f"{times} times"):
            Plant("a", "a.py", line, "pass").plant(tmp_path)


def test_slowdowns_go_together_where_none_reaches_the_path_of_another() -> None:
    one, two, three = (Plant(name, "a.py", "", "", also=also) for name, also in (("a", ("b",)), ("b", ()), ("c", ())))
    assert grouped([one, two, three], 5) == [[one, three], [two]]
    assert grouped([one, three, two], 1) == [[one], [three], [two]]


def test_the_meter_does_nothing_where_nobody_watches(tmp_path: Path) -> None:
    meter = Meter(compile_meter(tmp_path))
    for request in (meter.start, meter.zero, meter.dump, meter.stop):
        request()
    assert not meter.is_watched or "VALGRIND" in os.environ.get("LD_PRELOAD", "").upper()


def test_a_path_that_cannot_be_made_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "meter").mkdir()
    script = (
        "import sys; from asv_benchmarks.hot_paths.all import PATHS\n"
        "PATHS['none'] = type(PATHS['crc of 64 KiB'])('checksums', 'none', 'byte', lambda place: 1 / 0)\n"
        "from asv_benchmarks.counting.process import main; main(sys.argv[1], 'quick', sys.argv[2], sys.argv[3:])"
    )
    meter = compile_meter(tmp_path / "meter")
    command = [sys.executable, "-c", script, str(meter), str(tmp_path), "crc of 64 KiB", "none"]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    text = (tmp_path / process.REPORT).read_text()
    assert '"none": "ZeroDivisionError: division by zero"' in text and '"names": ["nothing", "crc of 64 KiB"]' in text


@pytest.mark.slow
def test_asv_takes_the_benchmarks() -> None:
    if importlib.util.find_spec("asv") is None:
        pytest.skip('asv is not installed: pip install "asv>=0.6.3"')
    environ = {**os.environ, "ASV_PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "asv", "check", "--python=same"]
    done = subprocess.run(command, cwd=ROOT / "asv_benchmarks", env=environ, capture_output=True, text=True)
    assert done.returncode == 0 and "No problems found" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(callgrind.unavailable() is not None, reason="valgrind is not installed")
@pytest.mark.skipif(not (ROOT / "kafkalog").is_dir(), reason="a slowdown is planted in a copy of the built tree")
def test_a_slowdown_in_python_code_is_named_and_nothing_else_is() -> None:
    slow = ("offset index, append", "entries of one write")  # none of which takes long under callgrind
    names = ["gzip, read", "time index, append", *slow]
    before = callgrind.count(names)
    assert not before.missing
    again, slowed = callgrind.count(names), tried([p for p in PLANTS if p.path in slow], names)
    for name in names:
        assert abs(again.instructions[name] / before.instructions[name] - 1) < 0.03
        assert (slowed[name] > 1.03 * before.instructions[name]) == (name in slow)
