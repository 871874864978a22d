"""Assignment of tests to pytest-xdist's processes: `pytest -n 4 --dist loadfile` asks `Shares`.

A share is what one process runs in one piece: a file, or what uses something costly that a process has once. The long
ones come first, so that no process is left with one of them while the others have nothing more to do. Many tests wait
for timeouts, disks and other programs, so there are more processes than processors.
"""

from collections.abc import Sequence
from typing import SupportsIndex

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

CRASHED_COMMITS = "tests/spark/test_commit_crash.py"
# paths and the share they belong to; the first one that matches counts, and what none matches is a share by file
TOGETHER = (
    ("tests/spark/test_clusters.py", "clusters"),  # one after the other: each is many virtual machines
    ("tests/spark/test_kills.py", "clusters"),
    ("tests/examples/test_spark_pipeline.py", "clusters"),
    ("tests/examples/test_stream_to_iceberg.py", "clusters"),
    (CRASHED_COMMITS, CRASHED_COMMITS),  # without Spark, and long
    ("tests/spark/", "spark"),  # one session
    ("tests/packaging/test_native_build.py", "sdist"),
    ("tests/packaging/test_sdist.py", "sdist"),
)
FIRST = (
    "clusters", "spark", "tests/server/replicated/", "sdist", "tests/packaging/", "tests/interop/", CRASHED_COMMITS,
    "tests/crash/", "tests/backup/", "tests/cli/", "tests/manager/", "tests/examples/", "tests/benchmarks/",
    "tests/damage/", "tests/browse/", "tests/test_docs",
    # long though they have few tests, which would leave them to the end
    "tests/test_promises.py", "tests/test_first_minutes.py", "tests/test_missing_packages.py",
    "tests/test_threads_doc.py", "tests/test_model", "tests/test_writer_interrupts.py",
    "tests/test_open_dirs_interrupts.py", "tests/test_interrupts.py", "tests/tools/test_hint",
    "tests/test_fuzz_faces.py", "tests/lake/", "tests/server/killed/", "tests/copy/test_kills.py", "tests/time_ranges/",
    "tests/server/test_serve_cmd.py", "tests/keys/test_key_scans.py",
)  # fmt: skip


def share_of(nodeid: str) -> str:
    """The name of the share that a test belongs to."""
    file = nodeid.partition("::")[0]
    return next((share for path, share in TOGETHER if file.startswith(path)), file)


def rank_of(share: str) -> int:
    """Its place in the order in which shares are begun."""
    return next((place for place, start in enumerate(FIRST) if share.startswith(start)), len(FIRST))


class Collected(list[str]):
    """The tests that a process has collected; `index` does not go through all of them, as that of a list does."""

    def __init__(self, tests: Sequence[str]) -> None:
        super().__init__(tests)
        self._places = {test: place for place, test in enumerate(tests)}

    def index(self, value: str, start: SupportsIndex = 0, stop: SupportsIndex = 0) -> int:
        return self._places[value]


class Shares(LoadScopeScheduling):
    """Gives each process a share at a time: those of `FIRST` in their order, then the one with the most tests.

    After the crash of a process the others run what it had left. The test that crashed it fails, and is not run again.
    """

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=rank_of), last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        super()._reschedule(node)
        # a process keeps its last test until it gets another one or the end: with a single one it would wait for ever
        while self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            self._assign_work_unit(node)
        if not (self.workqueue or node.shutting_down):
            node.shutdown()

    def remove_node(self, node: WorkerController) -> str | None:
        shares = self.assigned_work[node]
        crashed = next((test for share in shares.values() for test, is_done in share.items() if not is_done), None)
        if crashed is not None:
            share = share_of(crashed)
            shares[share][crashed] = True
            if all(shares[share].values()):
                del shares[share]
        super().remove_node(node)
        return crashed

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        super().add_node_collection(node, collection)
        if node in self.registered_collections:
            self.registered_collections[node] = Collected(collection)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        share = share_of(self.registered_collections[node][item_index])
        super().mark_test_complete(node, item_index, duration)
        if all(self.assigned_work[node][share].values()):  # it would be gone through after each test that follows
            del self.assigned_work[node][share]
