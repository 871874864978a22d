"""CPython without the GIL: importing kafkalog must not bring the GIL back."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import kafkalog

IMPORT_ALL = """
import importlib, pkgutil, sys
import kafkalog

unknown = []
for module in pkgutil.walk_packages(kafkalog.__path__, "kafkalog.", onerror=lambda name: None):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ImportError as error:    # a package of an extra, which may have no wheel for this interpreter
        unknown.append(f"{module.name}: {error}")
    if sys._is_gil_enabled():
        sys.exit(f"{module.name} needs the GIL")
assert not [one for one in unknown if one.startswith("kafkalog._core")], unknown
print(len([name for name in sys.modules if name.startswith("kafkalog._core.")]))
"""


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this interpreter always has the GIL")
def test_no_module_enables_the_gil() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    compiled = len(list(Path(kafkalog.__file__).parent.glob("_core/*/*.so")))
    assert int(done.stdout) >= compiled > 80
