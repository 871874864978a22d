"""The parts around a build: names of targets, an sdist without clocks, where headers come from, the last table."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from ci.wheels import debian, headers, maven, trial
from ci.wheels.command import Failed, run
from ci.wheels.report import Row, table
from ci.wheels.source import normalized
from ci.wheels.targets import Target, all_targets, chosen


def test_the_names_of_a_target_are_those_of_the_standards():
    gnu, musl = Target("3.13", "manylinux", "aarch64"), Target("3.14t", "musllinux", "x86_64")
    assert (gnu.name, gnu.suffix) == ("cp313-manylinux_aarch64", ".cpython-313-aarch64-linux-gnu.so")
    assert (gnu.triple, gnu.platform) == ("aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64")
    assert (musl.name, musl.suffix) == ("cp314t-musllinux_x86_64", ".cpython-314t-x86_64-linux-musl.so")
    assert (musl.python_tag, musl.interpreter_tag, musl.triple) == ("cp314", "cp314t", "x86_64-linux-musl")


def test_three_pythons_on_both_machines_are_required_and_come_first():
    required = [target.name for target in all_targets() if target.required]
    assert required == [target.name for target in all_targets()][: len(required)]
    assert set(required) == {f"cp3{n}-manylinux_{m}" for n in (11, 12, 13) for m in ("x86_64", "aarch64")}


def test_targets_are_chosen_by_parts_of_their_names():
    assert {target.name for target in chosen(["cp312-musl"])} == {"cp312-musllinux_x86_64", "cp312-musllinux_aarch64"}
    assert chosen([]) == all_targets()
    with pytest.raises(ValueError, match=r"no wheel is called 'cp27'; there are: cp311-"):
        chosen(["cp27"])


def archive(members: list[tuple[str, bytes, int]], clock_s: int, owner: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        for name, data, mode in members:
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime, member.uname, member.uid = len(data), mode, clock_s, owner, clock_s
            file.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def test_an_sdist_tells_neither_when_nor_by_whom_it_was_made():
    members = [("toy/setup.py", b"pass\n", 0o600), ("toy/run.sh", b"#!/bin/sh\n", 0o775)]
    one = normalized(archive(members, 1_700_000_001, "mary"), 1_600_000_000)
    other = normalized(archive(members[::-1], 1_800_000_007, "john"), 1_600_000_000)
    assert one == other and b"mary" not in gzip.decompress(one)
    with tarfile.open(fileobj=io.BytesIO(one)) as file:
        assert [(m.name, m.mode, m.mtime, m.uid) for m in file] == [
            ("toy/run.sh", 0o755, 1_600_000_000, 0), ("toy/setup.py", 0o644, 1_600_000_000, 0),
        ]  # fmt: skip
        assert file.extractfile("toy/setup.py").read() == b"pass\n"


def test_another_commit_is_another_sdist():
    members = [("toy/setup.py", b"pass\n", 0o644)]
    assert normalized(archive(members, 1, "a"), 1) != normalized(archive(members, 1, "a"), 2)


def include(folder: Path, version: str) -> tuple[Path, ...]:
    folder.mkdir(parents=True)
    (folder / "Python.h").write_text("#include <patchlevel.h>\n")
    (folder / "patchlevel.h").write_text(f'#define PY_MAJOR_VERSION 3\n#define PY_VERSION      \t"{version}"\n')
    return (folder,)


def test_headers_come_from_the_first_source_that_has_them(tmp_path, monkeypatch):
    def nothing(*_):
        raise Failed("it is not there\nand more")

    target = Target("3.12", "manylinux", "aarch64")
    folders = include(tmp_path / "a", "3.12.1+")
    monkeypatch.setattr(debian, "include_dirs", nothing)
    monkeypatch.setattr(maven, "include_dirs", lambda *_: folders)
    found = headers.find_headers(target, tmp_path, tmp_path / "log")
    assert (found.include_dirs, found.version, found.origin) == (folders, "3.12.1", "Maven")

    monkeypatch.setattr(maven, "include_dirs", lambda *_: include(tmp_path / "b", "3.13.0"))
    monkeypatch.setattr(headers, "local", nothing)
    with pytest.raises(Failed) as failed:
        headers.find_headers(target, tmp_path, tmp_path / "log")
    assert "Debian: it is not there;" in str(failed.value) and "has the headers of 3.13.0;" in str(failed.value)


def test_headers_of_a_free_threaded_python_are_those_of_this_machine(tmp_path, monkeypatch):
    target = Target("3.14t", "manylinux", "x86_64")
    folders = include(tmp_path / "a", "3.14.7")
    monkeypatch.setattr(headers, "local", lambda *_: folders)
    with pytest.raises(Failed, match="of a Python with the GIL"):
        headers.find_headers(target, tmp_path, tmp_path / "log")
    (folders[0] / "pyconfig.h").write_text("#define Py_GIL_DISABLED 1\n", encoding="utf-8")
    assert headers.find_headers(target, tmp_path, tmp_path / "log").origin == "this machine"
    with pytest.raises(Failed, match="of a Python without the GIL"):
        headers.checked(folders, Target("3.14", "manylinux", "x86_64"), "this machine")


def test_a_failed_command_is_told_with_what_it_said(tmp_path):
    log = tmp_path / "log"
    with pytest.raises(Failed, match=r"(?s)status 3 of: sh -c .*\nsorry\n"):
        run(["sh", "-c", "echo sorry; exit 3"], log)
    with pytest.raises(Failed, match="no-such-program cannot be run"):
        run(["no-such-program"], log)
    assert "sorry" in log.read_text()


def test_the_table_has_what_was_made_and_why_the_rest_was_not(tmp_path):
    required, other = Target("3.11", "manylinux", "x86_64"), Target("3.15", "musllinux", "aarch64")
    good = Row(required, tmp_path / "a.whl", 2_500_000, "ab" * 32, "2.14", "3.11.2 (Debian)", 61.4)
    bad = Row(other, tmp_path / "b.whl", faults=["lacks kafkalog/py.typed"])
    missing, wished = Row(required, reason="no headers; Debian: none"), Row(other, reason="no headers; Maven: none")
    assert [row.tolerable for row in (good, bad, missing, wished)] == [True, False, False, True]
    text = table([good, bad, missing, wished])
    assert text.startswith("made: 1 of 4\n") and "2.50 MB" in text and "ab" * 32 in text
    assert "1 FAULTS" in text and "    lacks kafkalog/py.typed" in text
    assert "cp311-manylinux_x86_64     MISSING: no headers" in text
    assert "cp315-musllinux_aarch64    not made: no headers; Maven: none" in text


@pytest.mark.parametrize(("target", "said"), [
    (Target("3.11", "musllinux", "x86_64"), "no registry has a Python built for musl"),
    (Target("3.12", "manylinux", "aarch64"), "no aarch64 Python 3.12"),
    (Target("3.15", "manylinux", "x86_64"), "no Python 3.15 on this machine"),
])  # fmt: skip
def test_a_wheel_that_nothing_can_run_is_said_to_be_untested(target, said, tmp_path, monkeypatch):
    monkeypatch.setattr(trial.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(trial, "interpreters", lambda python: [])
    with pytest.raises(trial.NotRun, match=said):
        trial.try_wheel(target, tmp_path / "a.whl", tmp_path, tmp_path, [], tmp_path / "log")


def test_the_tests_run_with_the_python_of_the_wheel(tmp_path, monkeypatch):
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci/test_wheel.sh").write_text('echo "$@"; echo "=== 3 passed in 0.1s ==="; exit $STATUS\n')
    python = tmp_path / "python3.12"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    monkeypatch.setattr(trial.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(trial, "interpreters", lambda version: [tmp_path / "gone", python])
    monkeypatch.setenv("STATUS", "0")
    given = (Target("3.12", "manylinux", "x86_64"), tmp_path / "a.whl", tmp_path, tmp_path, ["-m", "not slow"])
    assert trial.try_wheel(*given, tmp_path / "log") == "3 passed in 0.1s"
    assert f"{tmp_path}/a.whl {python} -m not slow" in (tmp_path / "log").read_text()
    monkeypatch.setenv("STATUS", "1")
    with pytest.raises(Failed, match="status 1 of: bash"):
        trial.try_wheel(*given, tmp_path / "log")
