"""Java is found where it usually is; its absence is one line that says what to install."""

from pathlib import Path

import pytest

from kafkalog.errors import MissingRequirement
from kafkalog.spark.java import PACKAGES, Java, find_java, version_of


def java(home: Path, version: str, *, has_release: bool = True) -> Path:
    """Create a directory like that of a Java; with `has_release` False only the command shows its version."""
    (home / "bin").mkdir(parents=True)
    command = home / "bin" / "java"
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    command.chmod(0o755)
    if has_release:
        (home / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize(
    ("version", "feature"), [("17.0.15", 17), ("21", 21), ("1.8.0_412", 8), ("25.0.1", 25), ("11.0.2", 11)]
)
def test_versions_are_read_from_the_release_file_and_from_the_command(
    tmp_path: Path, version: str, feature: int
) -> None:
    assert version_of(str(java(tmp_path / "a", version))) == feature
    assert version_of(str(java(tmp_path / "b", version, has_release=False))) == feature


def test_what_is_no_java_has_no_version(tmp_path: Path) -> None:
    assert version_of(str(tmp_path)) is None
    odd = java(tmp_path / "odd", "none of your business", has_release=False)
    assert version_of(str(odd)) is None


def test_java_home_comes_first_then_the_path_then_the_newest_elsewhere(tmp_path: Path) -> None:
    home, path = java(tmp_path / "home", "17.0.1"), java(tmp_path / "path", "18.0.1")
    java(tmp_path / "usual" / "a", "19.0.1")
    newest = java(tmp_path / "usual" / "b", "23.0.1")
    places = (str(tmp_path / "usual" / "*"),)
    on_path = {"PATH": str(path / "bin")}
    assert find_java({"JAVA_HOME": str(home), **on_path}, places) == Java(str(home), 17)
    assert find_java(on_path, places) == Java(str(path), 18)
    assert find_java({}, places) == Java(str(newest), 23)


def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old, new = java(tmp_path / "old", "11.0.2"), java(tmp_path / "usual" / "new", "17.0.1")
    assert find_java({"JAVA_HOME": str(old)}, (str(tmp_path / "usual" / "*"),)) == Java(str(new), 17)


def test_none_or_only_an_old_one_is_one_line_with_the_command_of_the_package_manager(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for manager, command in PACKAGES.items():
        (tools / manager).write_text("#!/bin/sh\n")
        (tools / manager).chmod(0o755)
        with pytest.raises(MissingRequirement) as caught:
            find_java({"PATH": str(tools)}, ())
        said = str(caught.value)
        assert "no Java was found" in said and command in said and "\n" not in said
        (tools / manager).unlink()
    old = java(tmp_path / "old", "1.8.0_412")
    with pytest.raises(MissingRequirement, match=r"only Java 8 in .*/old\. Hint: install a Java 17 runtime"):
        find_java({"JAVA_HOME": str(old)}, ())
