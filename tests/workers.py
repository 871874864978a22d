"""Which of pytest-xdist's processes runs what: `pytest -n 2 --dist loadfile` asks `Shares`.

A share is what one process runs in one piece: a file, or what uses something costly that a process has once. The long
ones come first, so that no process is left with one of them while the other has nothing more to do.
"""

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

# paths and the share they belong to; the first one that matches counts, and what none matches is a share by file
TOGETHER = (
    ("tests/spark/", "spark"),  # one session, and never two clusters at once: they need memory
    ("tests/examples/test_spark_pipeline.py", "spark"),
    ("tests/interop/", "kafka"),  # one JVM that answers, one broker at a time
)
FIRST = ("spark", "kafka", "tests/crash/", "tests/cli/", "tests/manager/", "tests/examples/")


def share_of(nodeid: str) -> str:
    """The name of the share that a test belongs to."""
    file = nodeid.partition("::")[0]
    return next((share for path, share in TOGETHER if file.startswith(path)), file)


def rank_of(share: str) -> int:
    """Its place in the order in which shares are begun."""
    return next((place for place, start in enumerate(FIRST) if share.startswith(start)), len(FIRST))


class Shares(LoadScopeScheduling):
    """Gives each process a share at a time: those of `FIRST` in their order, then the one with the most tests."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=rank_of), last=False)
        super()._assign_work_unit(node)
