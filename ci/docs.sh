#!/usr/bin/env bash
# The site of docs/ (mkdocs.yml), into build/site or the directory named: bash ci/docs.sh [DIRECTORY]
# A warning is an error: a link that leads nowhere, a page in no menu, a name in the reference that is not there. The
# build fetches nothing, and no page does. `python -m mkdocs serve` shows it while it is written.
set -euo pipefail
TARGET="$(realpath -m "${1:-$(dirname "${BASH_SOURCE[0]}")/../build/site}")"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source ci/setup.sh docs

export NO_MKDOCS_2_WARNING=1    # the theme's news, which is no warning about these pages
python -m mkdocs build --strict --site-dir "$TARGET"
