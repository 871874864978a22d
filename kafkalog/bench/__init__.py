"""Benchmarks of the library on this machine, modelled on leveldb's db_bench: `run` and its results."""

from kafkalog.bench.result import Latency as Latency
from kafkalog.bench.result import Result as Result
from kafkalog.bench.result import Results as Results
from kafkalog.bench.running import run as run
from kafkalog.bench.settings import Settings as Settings

__all__ = ["Latency", "Result", "Results", "Settings", "run"]
