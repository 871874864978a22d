"""Benchmarks of the library on this machine, in the manner of leveldb's db_bench: `run` and what comes of it."""

from kafkalog.bench.result import Latency as Latency
from kafkalog.bench.result import Result as Result
from kafkalog.bench.result import Results as Results
from kafkalog.bench.running import run as run
from kafkalog.bench.settings import Settings as Settings

__all__ = ["Latency", "Result", "Results", "Settings", "run"]
