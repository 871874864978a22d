"""Slowdowns in Python modules: a pass too many over bytes, a fast way that is not gone, a search from the beginning."""

from asv_benchmarks.planted.plant import Plant

APPENDING = (
    Plant("append one record", "log/append.py", "if type(records) is not list:",
          "if type(records) is bytes:\n    sum(records * 5)",
          also=("append one record, sync=True", "append one record, flush.messages=1")),
    Plant("append a list of 1000 values", "log/append.py",
          "batch = encode_ready(records, timestamp=now_ms)",
          "if len(records) == 1000:\n    sorted(records)"),
    Plant("append a ready batch of 1", "log/append.py",
          "info = opened.append_ready(batches, any_base_offset=True)",
          "if len(batches) < 1000:\n    sum(batches)",
          also=("append of an idempotent producer",)),
    Plant("append a ready batch of 100", "log/append.py",
          "info = opened.append_ready(batches, any_base_offset=True)",
          "if len(batches) > 9000:\n    sum(batches)"),
    Plant("append many batches in one call", "log/append.py", "info = opened.append_batches(buffer, table)",
          "sum(buffer)"),
    Plant("append of an idempotent producer", "_core/log/append_engine.pyx",
          "producers.take(producer)", "sum(bytes(300))"),
    Plant("replicate batches", "log/append.py", "info = opened.append_as_follower(buffer, epoch)", "sum(buffer)"),
    Plant("append compressed, lz4", "log/append.py", "compression = choose(opened.log.config, requested)",
          "sum(batch)"),
    Plant("append an Arrow table", "log/arrow_append.py",
          "info = _combine(info, opened.append_batches(part.batches, check_records=False))",
          "sum(bytes(part.batches))"),
    Plant("append one record, sync=True", "storage/durability.py", "me = shut_gate()", "sum(bytes(1000))"),
    Plant("append one record, flush.messages=1", "storage/log_parts/flusher.py",
          "if state.log_end_offset - state.recovery_point >= self._core.flush_messages:", "sum(bytes(500))"),
    Plant("put records into a writer", "log/writer.py", "if timestamp is None:",
          "if core.sync is False:\n    sum(bytes(100))"),
    Plant("group commit of 4 threads", "log/writer.py", "if key is None and core.needs_key:",
          "if core.sync is True:\n    sum(bytes(5000))"),
)  # fmt: skip
CLEANING = (
    Plant("what of a chunk stays", "records/filter.py", 'view = memoryview(chunk).cast("B")', "sum(bytes(20000))",
          also=("clean a log",)),
    Plant("clean a log", "cleaner/pass_.py", "log = to_clean.log", "sum(bytes(100000))"),
    Plant("plan what retention takes", "storage/retention.py", "due: list[Due[S]] = []", "sum(bytes(5000))"),
)  # fmt: skip
CODECS = (
    Plant("gzip, written", "records/gzip_member.py", "chosen = DEFAULT_LEVEL if level is None or level < 0 else level",
          "sum(bytes(data[:9000]))"),
    Plant("snappy, written", "records/xerial.py", "store.append(_STREAM_START)", "sum(bytes(data[:9000]))"),
    Plant("lz4, written", "records/lz4_frame.py", "store.append(_HEADERS[magic])", "sum(bytes(data[:9000]))",
          also=("append compressed, lz4",)),
    Plant("zstd, written", "records/zstd_frame.py", "contexts = _contexts()", "sum(bytes(data[:9000]))"),
    *(
        Plant(f"{name}, read", "records/plain_runs.py", "last = len(batches) if last < 0 else last",
              f"if batches.codec and batches.codec & 7 == {codec} and len(batches) == 20:\n    sum(bytes(40000))")
        for codec, name in ((1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd"))
    ),
)  # fmt: skip
COLUMNS = (
    Plant("scan to Arrow, all columns", "log/scan.py", "return (RecordBatchColumns(piece) for piece in self._pieces())",
          "if len(self._kinds) > 4:\n    sum(bytes(40000))"),
    Plant("scan to Arrow, offsets alone", "log/scan.py",
          "return (RecordBatchColumns(piece) for piece in self._pieces())",
          "if len(self._kinds) == 1:\n    sum(bytes(40000))"),
    Plant("table in memory", "log/scan.py", "return Table.of(self._pieces(), self._kinds)", "sum(bytes(40000))"),
    Plant("rows for Spark", "spark/reading.py", "batch = pa.record_batch(piece, schema=schema)", "sum(bytes(40000))"),
    Plant("rows from Spark, staged", "spark/sink_task.py",
          "landing = Landing(directory, job, options.partitions, options.compression)",
          "sum(bytes(40000))"),
)  # fmt: skip
INDEXES = (
    Plant("offset index, append", "storage/index/offset_index.py",
          "relative = self.relative_offset(offset)", "sum(bytes(200))"),
    Plant("time index, append", "storage/index/time_index.py",
          "count, room, last = self._entries.count, self._file.length // 12, self._last", "sum(bytes(200))"),
    Plant("entries of one write", "storage/index/offset_index.py",
          "if not extend_offsets(self, entries):", "if True:", in_place=True),
    Plant("transaction index, collect", "storage/index/transaction_index.py",
          "entries = self._from(self._first_at_or_above(fetch_offset))", "entries = self._from(0)", in_place=True),
    Plant("open and map an index", "storage/index/abstract_index.py", "self.max_index_size = max_index_size",
          "sum(bytes(800))"),
)  # fmt: skip
OPENING = (
    Plant("open a log to read", "log/open.py",
          'given += ["progress"] * (progress is not None)',
          "sum(bytes(5000))"),
    Plant("open a log to append", "log/open.py", "for name in settings:", "sum(bytes(20000))"),
    Plant("recover batches of 1", "storage/recovery/recover_segment.py", "return FoundSegment(found, status)",
          "sum(bytes(4 * found.batches))"),
    Plant("recover batches of 100", "storage/recovery/recover_segment.py", "return FoundSegment(found, status)",
          "if found.batches < 1000:\n    sum(bytes(20000))"),
    Plant("start and stop a log manager", "manager/log_manager.py",
          "settings = BrokerConfig() if config is None else config", "sum(bytes(100000))"),
)  # fmt: skip
TOOLS = (
    Plant("verify batches of 1", "tools/verify/segment.py", "return self._collect_facts()",
          "sum(bytes(4 * check.batches))"),
    Plant("verify batches of 100", "tools/verify/segment.py", "return self._collect_facts()",
          "if check.batches < 1000:\n    sum(bytes(10000))", also=("verify deep", "plan a repair")),
    Plant("verify deep", "tools/verify/deep.py", "position, want = start, CHUNK_BYTES", "sum(bytes(20000))"),
    Plant("plan a repair", "tools/repair/directories.py",
          "groups = find_groups(path_list(paths), fs)", "sum(bytes(20000))"),
    Plant("dump text of records", "tools/dump/log.py", "printer.title(path, title_of(path))",
          "if options.deep_iteration:\n    sum(bytes(50000))"),
    Plant("dump text of batches", "tools/dump/log.py", "printer.title(path, title_of(path))",
          "if not options.deep_iteration:\n    sum(bytes(50000))"),
    Plant("dump text of indexes", "tools/dump/index.py",
          "with LogPeek(sibling_path(path, names.LOG_SUFFIX), fs) as log, _open(path, fs) as file:",
          "sum(bytes(20000))"),
)  # fmt: skip
PRODUCERS = (
    Plant("snapshot, written and read", "storage/producer_snapshot.py",
          'packed = b"".join([_ENTRY.pack(*entry) for entry in entries])', "sum(bytes(5000))"),
    Plant("write a marker", "records/control_batch.py", "if producer_id < 0 or producer_epoch < 0:", "sum(bytes(500))"),
)  # fmt: skip
READING = (
    Plant("messages of version 1", "records/tables.py",
          "table = decode(run.data, run.table, run.first, run.last, base_position=run.base_position)",
          "if batches.count == 500:\n    sum(bytes(5000))"),
    Plant("read by offset", "log/log.py", "return record_at(self._source, operator.index(key))", "sum(bytes(200))"),
    Plant("look-up by time", "log/read.py", "if timestamp < 0:", "sum(bytes(300))"),
    Plant("iterate records", "log/read.py",
          "return _read(chunks.records, log, (start, stop, since, until), isolation, on_damage, skipped)",
          "sum(bytes(100000))"),
    Plant("iterate batches", "reading/chunks.py", "chunks = batch_chunks(log, start, stop, owner, skipped=skipped)",
          "sum(bytes(100000))"),
    Plant("read a range as a fetch does", "storage/log_parts/reader.py",
          "return read_state(state, start_offset, max_length, state.end_metadata, min_one_message)",
          "if max_length == 65536:\n    sum(bytes(400))"),
    Plant("read what is committed", "storage/log_parts/reader.py", "bound = self.readable_end(isolation)",
          "sum(bytes(500))"),
    Plant("text of records", "tools/consume/text.py", "text = TemplateText(", "sum(bytes(50000))"),
    Plant("poll with a cursor", "cursors/cursor.py", "before = self._next", "sum(bytes(8000))"),
)  # fmt: skip
PACKAGE = (*APPENDING, *CLEANING, *CODECS, *COLUMNS, *INDEXES, *OPENING, *TOOLS, *PRODUCERS, *READING)
