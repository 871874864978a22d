"""asv's environment `trees`: the interpreter and packages that run asv, with the `kafkalog` of any commit.

asv's own `existing` environment cannot change commits. This one takes a commit's package from `counting.base.tree_of`,
which compiles only the modules that differ. So `asv run` and `asv continuous` need no other virtual environment.
"""

import os
import sys
from pathlib import Path
from typing import Any

from asv import environment, util

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from asv_benchmarks.counting.base import tree_of  # noqa: E402


class Trees(environment.Environment):  # type: ignore[misc]
    """The running interpreter; installing a commit puts its tree in front of the module path."""

    tool_name = "trees"

    def __init__(self, conf: Any, python: str, requirements: dict[str, str], tagged_env_vars: dict[Any, str]) -> None:
        self._python, self._requirements = "python", {}
        super().__init__(conf, "python", {}, tagged_env_vars)
        self._global_env_vars.pop("ASV_ENV_DIR")
        self._tree = ROOT

    @classmethod
    def matches(cls, python: str) -> bool:
        """Return True: the running interpreter takes the place of any that is named."""
        return True

    @property
    def name(self) -> str:
        """Name in the files of results, without the path of the interpreter."""
        return "existing-python"

    @property
    def installed_commit_hash(self) -> str | None:
        """None: choosing a tree costs nothing, so asv does it for each commit."""
        return None

    def check_presence(self) -> bool:
        """Return True: there is nothing to create."""
        return True

    def create(self) -> None:
        """Do nothing: the running environment is used."""

    def install_project(self, conf: Any, repo: Any, commit_hash: str) -> None:
        """Choose the tree of a commit, and compile it if necessary."""
        self._tree = tree_of(commit_hash)
        self._set_commit_hash(commit_hash)

    def run(self, args: list[str], **kwargs: Any) -> Any:
        """Run the interpreter with the chosen tree's package."""
        variables = dict(kwargs.pop("env", None) or os.environ)
        variables.update(self._global_env_vars | self.env_vars)
        variables["ASV_PYTHONPATH"] = variables["PYTHONPATH"] = f"{self._tree}{os.pathsep}{ROOT}"
        return util.check_output([sys.executable, *args], env=variables, **kwargs)
