#!/usr/bin/env bash
# The main job, end to end: ten million lines into one log in Kafka's own files, looked up, shown, read back.
# Then orders to an Iceberg table, whose writer is killed on the way, and to a query of it; once more by a stream on
# Spark. Then a pipeline on Spark: events to windowed totals, a Parquet table, a compacted topic, and a picture.
# LINES=n sets another count, DIR=path another place (kept), KEEP=1 keeps the files; TABLES=0 leaves the tables out, and
# SPARK=0 what needs Spark; EVENTS=n sets how many events it gets, and ORDERS=n how many orders the table.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shells set LINES to the height of the window; only an exported one is a wish
COUNT="$(env | sed -n 's/^LINES=//p')"
COUNT="${COUNT:-10000000}"
exec </dev/null
export SPARK="${SPARK:-1}" TABLES="${TABLES:-1}"
source ci/setup.sh run

TOPIC=tp_demo_05
case "$COUNT" in '' | *[!0-9]* | 0) echo "demo: LINES must be a number from 1 on, not '$COUNT'" >&2; exit 2 ;; esac
COUNT=$((10#$COUNT))
EVENTS="${EVENTS:-200000}"
case "$EVENTS" in '' | *[!0-9]* | 0) echo "demo: EVENTS must be a number from 1 on, not '$EVENTS'" >&2; exit 2 ;; esac
ORDERS="${ORDERS:-200000}"
case "$ORDERS" in '' | *[!0-9]* | 0) echo "demo: ORDERS must be a number from 1 on, not '$ORDERS'" >&2; exit 2 ;; esac
if [ -n "${DIR:-}" ]; then mkdir -p "$DIR"; WORK="$(cd "$DIR" && pwd)"; KEEP=1; else WORK="$(mktemp -d)"; fi
if [ "${KEEP:-0}" = 1 ]; then trap 'rm -f "$WORK/clock" "$WORK/spark.log"' EXIT; else trap 'rm -rf "$WORK"' EXIT; fi
cd "$WORK"
DATA=data INPUT=input.txt OUTPUT=output.txt FIRST="data/$TOPIC-0/00000000000000000000"

need_kib=$((COUNT * 68 / 1024 + 65536))
free_kib="$(df -Pk "$WORK" | awk 'NR == 2 { print $4 }')"
if [ "$free_kib" -lt "$need_kib" ]; then
    echo "demo: $WORK has $((free_kib / 1024)) MiB free, $((need_kib / 1024)) are needed; set DIR= or LINES=" >&2
    exit 1
fi
if [ -e "$DATA" ]; then echo "demo: $WORK/$DATA is already there; remove it or choose another DIR=" >&2; exit 1; fi

title() { printf '\n== %s\n' "$*"; }
show() { printf '$ %s\n' "$*"; }

# timed LINES FILE COMMAND...: runs it, then prints its time and the rate over so many lines and that file's bytes; its
# status is the command's
timed() {
    local lines="$1" file="$2" real user system bytes status=0 TIMEFORMAT='%R %U %S'
    shift 2
    { time "$@" 2>&3 || status=$?; } 3>&2 2>"$WORK/clock"
    read -r real user system < <(tail -n 1 "$WORK/clock")
    bytes="$(cat "$file" 2>/dev/null | wc -c)"
    awk -v r="$real" -v u="$user" -v s="$system" -v n="$lines" -v b="$bytes" 'BEGIN {
        if (r < 0.001) r = 0.001
        printf "   %.2f s (%.2f s CPU)", r, u + s
        if (n > 1) printf ", %.2f million lines/s, %.0f MB/s", n / r / 1e6, b / r / 1e6
        printf "\n" }'
    return "$status"
}

# head_of N COMMAND...: the first N lines it prints; a closed pipe is a good end
head_of() {
    local lines="$1" status
    shift
    set +e +o pipefail
    "$@" | head -n "$lines"
    status="${PIPESTATUS[0]}"
    set -e -o pipefail
    if [ "$status" -ne 0 ] && [ "$status" -ne 141 ]; then echo "demo: $* ended with status $status" >&2; exit 1; fi
}

make_input() { awk -v n="$COUNT" 'BEGIN { for (i = 1; i <= n; i++) print "hello lagou " i }' >"$INPUT"; }
read_back() { kafkalog consume -q -d "$DATA" -t "$TOPIC" -o beginning -e >"$OUTPUT"; }
sha() { python -c 'import hashlib, sys; print(hashlib.file_digest(open(sys.argv[1], "rb"), "sha256").hexdigest())' "$1"; }

title "make a text file of $COUNT lines"
timed "$COUNT" "$INPUT" make_input
head -n 2 "$INPUT"
tail -n 1 "$INPUT"

title "produce it into topic $TOPIC, one partition, segments of 100 MiB"
show "kafkalog produce -d data -t $TOPIC -l -X segment.bytes=104857600 input.txt"
timed "$COUNT" "$INPUT" kafkalog produce -d "$DATA" -t "$TOPIC" -l -X segment.bytes=104857600 "$INPUT"

title "the segments"
show "kafkalog ls -d data -t $TOPIC"
timed 1 "$INPUT" kafkalog ls -d "$DATA" -t "$TOPIC"

title "what the first log, offset index and time index say"
for suffix in log index timeindex; do
    flags=()
    if [ "$suffix" = log ]; then flags=(--deep-iteration --print-data-log); fi
    show "kafkalog dump ${flags[*]:+${flags[*]} }$FIRST.$suffix | head -n 6"
    timed 1 "$INPUT" head_of 6 kafkalog dump "${flags[@]}" "$FIRST.$suffix"
done

title "find an offset"
middle=$((COUNT / 2))
show "kafkalog consume -d data -t $TOPIC -o $middle -c 1 -f '%o %T %s\\n'"
find_offset() { kafkalog consume -q -d "$DATA" -t "$TOPIC" -o "$middle" -c 1 -f '%o %T %s\n' >"$WORK/found.txt"; }
timed 1 "$INPUT" find_offset
cat "$WORK/found.txt"
read -r found_offset found_time found_value <"$WORK/found.txt"
if [ "$found_offset $found_value" != "$middle hello lagou $((middle + 1))" ]; then
    echo "demo: offset $middle holds '$found_value' at $found_offset" >&2
    exit 1
fi

title "find a time: the first record stamped $found_time or later"
show "kafkalog offsets get -d data -t $TOPIC --time $found_time"
timed 1 "$INPUT" kafkalog offsets get -d "$DATA" -t "$TOPIC" --time "$found_time"

title "read everything back"
show "kafkalog consume -d data -t $TOPIC -o beginning -e > output.txt"
timed "$COUNT" "$INPUT" read_back

title "compare"
compare() { written="$(sha "$INPUT")" && read="$(sha "$OUTPUT")"; }
timed "$COUNT" "$INPUT" compare
echo "written $written"
echo "read    $read"
if [ "$written" != "$read" ]; then echo "demo: what was read is not what was written" >&2; exit 1; fi
echo "the same: every byte of $COUNT lines came back"

# tables_lack: one line that says what is missing for tables here; nothing where they can be written
tables_lack() {
    python -c '
try:
    import duckdb
    import pyiceberg.catalog.sql
    import pyiceberg.io.pyarrow
except ImportError as error:
    print(f"tables need more packages ({error}): pip install \"kafkalog[lake,sql]\"")'
}

to_table() { python "$ROOT/examples/orders_to_table.py" shop lake --orders "$ORDERS" --kills 3; }

run_table() {
    local lacks
    title "orders to an Iceberg table: $ORDERS of them, while the program that writes the table is killed three times"
    lacks="$(tables_lack)"
    if [ -n "$lacks" ]; then echo "left out: $lacks"; return 0; fi
    show "python examples/orders_to_table.py shop lake --orders $ORDERS --kills 3"
    timed 1 /dev/null to_table
}

if [ "$TABLES" != 0 ]; then run_table; fi

pipeline() { python "$ROOT/examples/spark_pipeline.py" --data pipeline --report report.png "$@" 2>"$WORK/spark.log"; }

# spark_lacks: one line that says what Spark does not have here, and what to install; nothing where it can run
spark_lacks() {
    python -c '
from kafkalog.errors import MissingRequirement
from kafkalog.spark.java import find_java
from kafkalog.spark.session import need_pyspark
try:
    find_java()
    need_pyspark()
    import matplotlib
except MissingRequirement as error:
    print(error)
except ImportError:
    print("the picture needs matplotlib: pip install \"kafkalog[viz]\"")'
}

# the second half; what fails here does not change what the first one found, and the status says so
run_pipeline() {
    local lacks
    title "a pipeline on Spark: $EVENTS orders, totals for each half hour, exactly once"
    lacks="$(spark_lacks)"
    if [ -n "$lacks" ]; then echo "left out: $lacks"; return 0; fi
    show "python examples/spark_pipeline.py --data pipeline --events $EVENTS --report report.png"
    timed 1 /dev/null pipeline --events "$EVENTS" || { tail -n 20 "$WORK/spark.log" >&2; return 1; }
    title "its checkpoint is lost: the totals come back from the compacted topic, with a tenth more orders"
    show "python examples/spark_pipeline.py --data pipeline --events $((EVENTS + EVENTS / 10)) --lose-checkpoint --report report.png"
    timed 1 /dev/null pipeline --events "$((EVENTS + EVENTS / 10))" --lose-checkpoint \
        || { tail -n 20 "$WORK/spark.log" >&2; return 1; }
}

stream_to_table() {
    TMPDIR="$WORK" python "$ROOT/examples/orders_to_table.py" shop spark-lake --orders "$ORDERS" --kills 2 --spark \
        2>"$WORK/spark.log"
}

run_stream() {
    local lacks
    title "the same log and $ORDERS more orders to a table, by a stream on Spark that is killed twice"
    lacks="$(tables_lack)" && lacks="${lacks:-$(spark_lacks)}"
    if [ -n "$lacks" ]; then echo "left out: $lacks"; return 0; fi
    show "python examples/orders_to_table.py shop spark-lake --orders $ORDERS --kills 2 --spark"
    timed 1 /dev/null stream_to_table || { tail -n 20 "$WORK/spark.log" >&2; return 1; }
}

if [ "$SPARK" != 0 ] && [ "$TABLES" != 0 ]; then run_stream; fi
if [ "$SPARK" != 0 ]; then run_pipeline; fi

title "what to try next"
echo "  . .venv/bin/activate               puts kafkalog and its Python into this shell"
if [ "${KEEP:-0}" = 1 ]; then
    echo "  python -c \"import kafkalog; print(kafkalog.open('$WORK/$DATA/$TOPIC-0')[-1])\""
    echo "  kafkalog consume -d $WORK/$DATA -t $TOPIC -o -3 -J"
    if [ -e report.png ]; then
        echo "  kafkalog consume -d $WORK/pipeline/log -t totals -o -3 -J"
        echo "  the picture is $WORK/report.png"
    fi
else
    echo "  KEEP=1 bash ci/demo.sh             keep the files and look around with kafkalog ls, consume, dump"
fi
echo "  LINES=100000 bash ci/demo.sh       another count"
echo "  bash ci/test.sh                    the tests, the real Kafka's dump of such files among them"
echo "  make bench                         the same work beside other programs"
