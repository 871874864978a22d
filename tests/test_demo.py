"""ci/demo.sh: what fails in it is not a good end."""

import re
import subprocess
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[1] / "ci" / "demo.sh"


@pytest.mark.parametrize(
    ("line", "status", "printed"),
    [
        ("timed 1 /dev/null true; echo on", 0, "on"),
        ("timed 1 /dev/null fails; echo on", 3, ""),
        ("half() { timed 1 /dev/null fails || { echo caught; return 1; }; }; half; echo on", 1, "caught"),
    ],
)
def test_what_is_timed_has_its_own_status(tmp_path: Path, line: str, status: int, printed: str) -> None:
    timed = re.search(r"^timed\(\) \{.*?^\}", DEMO.read_text(), re.MULTILINE | re.DOTALL)
    assert timed is not None
    script = f"set -euo pipefail\nWORK={tmp_path}\n{timed[0]}\nfails() {{ return 3; }}\n{line}\n"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split("\n")[-2] if printed else printed) == (status, printed), done
