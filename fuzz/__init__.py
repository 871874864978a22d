"""Targets of the coverage-guided fuzzer: one module each, with `run(data)` and `SEALS`; see docs/fuzzing.md."""
