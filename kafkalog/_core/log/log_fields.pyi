from collections.abc import Callable

from kafkalog._core.log.admit import LeaderLimits
from kafkalog._core.log.log_lock import LogLock
from kafkalog._core.log.roll import RollRules
from kafkalog._core.log.staged import Staged
from kafkalog._core.log.state import LogState

class LogFields:
    lock: LogLock
    state: LogState
    staged: Staged | None
    active: object
    rules: RollRules
    limits: LeaderLimits
    producers: object
    health: object
    after_unlock: list[Callable[[], object]]
    milliseconds: Callable[[], int]
    flush_messages: int
    unstable_is_stale: bool
    leader_epoch: int
    follows: bool

    def ready_locked(self) -> LogState: ...
