#!/usr/bin/env bash
# Everything a change has to pass, on a fresh clone too: style, types, and the whole test suite, with the golden
# data and, where Java is, the real Kafka beside us. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source ci/setup.sh test

python -m ruff check .
python -m mypy --strict kafkalog
exec python -m pytest "$@"
