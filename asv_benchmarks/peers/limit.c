/* What plain C reaches on the same work: no validation, no index, no locks, no Python. The ceiling for compiled code.
 *
 *   limit JOB [FILE...]   prints one line: CPU seconds, and how many items they took.
 *
 * produce IN OUT        lines of IN into v2 batches of at most 16384 bytes, written to OUT
 * consume IN OUT        values of the batches in IN, a newline behind each, checksums looked at
 * dump IN OUT           one text line for each record of IN, offset, time and value in it
 * append DIR COUNT      one write of a batch of COUNT 100-byte records, offsets and checksum set before it
 * scan IN               batches of IN: header, checksum, every record's fields
 * lookup                random and last entries of a 10 MiB offset index
 * crc                   64 KiB again and again
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kcrc.h"

enum { CHUNK = 256 * 1024, HEADER = 61, LIMIT = 16384 };
static volatile uint64_t keep;

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void report(const char *name, double seconds, double items) { printf("%s %.6f %.0f\n", name, seconds, items); }
static void be32(uint8_t *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
static void be64(uint8_t *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }
static uint32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
static uint64_t get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }

static uint8_t *put(uint8_t *p, int64_t value) {
    uint64_t v = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    while (v >= 128) { *p++ = (uint8_t)(v | 128); v >>= 7; }
    *p++ = (uint8_t)v;
    return p;
}

static const uint8_t *take(const uint8_t *p, int64_t *out) {
    uint64_t v = 0;
    int shift = 0;
    while (*p & 128) { v |= (uint64_t)(*p++ & 127) << shift; shift += 7; }
    v |= (uint64_t)*p++ << shift;
    *out = (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
    return p;
}

static void write_all(int fd, const uint8_t *p, size_t n) {
    while (n) {
        ssize_t w = write(fd, p, n);
        if (w <= 0) { perror("write"); exit(1); }
        p += w;
        n -= (size_t)w;
    }
}

static int open_or_die(const char *path, int flags) {
    int fd = open(path, flags, 0644);
    if (fd < 0) { perror(path); exit(1); }
    return fd;
}

static void seal(uint8_t *batch, size_t size, uint64_t base, uint32_t count) {
    memset(batch, 0, HEADER);
    be64(batch, base);
    be32(batch + 8, (uint32_t)size - 12);
    batch[16] = 2;
    be32(batch + 23, count - 1);
    be64(batch + 27, 1700000000000);
    be64(batch + 35, 1700000000000);
    memset(batch + 43, 0xff, 14);
    be32(batch + 57, count);
    be32(batch + 17, kl_crc32c(0, batch + 21, size - 21));
}

static uint8_t *record(uint8_t *p, const uint8_t *value, size_t n, uint32_t delta) {
    uint8_t body[16], *q = body;
    *q++ = 0;
    *q++ = 0;
    q = put(q, delta);
    *q++ = 1;
    q = put(q, (int64_t)n);
    p = put(p, (q - body) + (int64_t)n + 1);
    memcpy(p, body, (size_t)(q - body));
    p += q - body;
    memcpy(p, value, n);
    p += n;
    *p++ = 0;
    return p;
}

static void produce(const char *in, const char *out) {
    static uint8_t text[CHUNK], batches[2 * CHUNK];
    int from = open_or_die(in, O_RDONLY), to = open_or_die(out, O_RDWR | O_CREAT | O_TRUNC);
    size_t have = 0;
    uint64_t base = 0;
    uint32_t count = 0;
    uint8_t *batch = batches, *p = batch + HEADER;
    for (;;) {
        ssize_t got = read(from, text + have, CHUNK - have);
        uint8_t *line = text, *end = text + have + (got > 0 ? got : 0), *stop;
        while ((stop = memchr(line, '\n', (size_t)(end - line))) != NULL) {
            size_t n = (size_t)(stop - line);
            if (p + n + 20 > batch + LIMIT) {
                seal(batch, (size_t)(p - batch), base, count);
                base += count;
                count = 0;
                batch = p;
                if (batch - batches > CHUNK) {
                    write_all(to, batches, (size_t)(batch - batches));
                    batch = batches;
                }
                p = batch + HEADER;
            }
            p = record(p, line, n, count++);
            line = stop + 1;
        }
        have = (size_t)(end - line);
        memmove(text, line, have);
        if (got <= 0) break;
    }
    if (count) seal(batch, (size_t)(p - batch), base, count);
    write_all(to, batches, (size_t)((count ? p : batch) - batches));
    report("produce", cpu(), (double)(base + count));
}

/* Calls `each` for every record of a file of batches, with the output buffer that it fills. */
typedef uint8_t *(*each_fn)(uint8_t *out, uint64_t offset, int64_t time, const uint8_t *value, int64_t n);

static void walk(const char *name, const char *in, const char *out, each_fn each) {
    static uint8_t data[4 * CHUNK], text[16 * CHUNK];
    int from = open_or_die(in, O_RDONLY), to = out ? open_or_die(out, O_WRONLY | O_CREAT | O_TRUNC) : -1;
    size_t have = 0;
    uint64_t records = 0;
    for (;;) {
        ssize_t got = read(from, data + have, CHUNK);
        if (got > 0) have += (size_t)got;
        uint8_t *p = data, *end = data + have, *o = text;
        while (end - p >= HEADER && (size_t)(end - p) >= get32(p + 8) + 12ul) {
            size_t size = get32(p + 8) + 12ul;
            uint64_t base = get64(p);
            int64_t time = (int64_t)get64(p + 27), n = 0;
            keep += kl_crc32c(0, p + 21, size - 21) == get32(p + 17);
            uint32_t count = get32(p + 57);
            const uint8_t *r = p + HEADER;
            for (uint32_t i = 0; i < count; i++) {
                int64_t length, ts, delta, key;
                r = take(r, &length);
                const uint8_t *next = r + length;
                r = take(r + 1, &ts);
                r = take(r, &delta);
                r = take(r, &key);
                if (key > 0) r += key;
                r = take(r, &n);
                o = each(o, base + (uint64_t)delta, time + ts, r, n);
                r = next;
            }
            records += count;
            p += size;
            if (to >= 0 && o - text > CHUNK) { write_all(to, text, (size_t)(o - text)); o = text; }
        }
        have = (size_t)(end - p);
        memmove(data, p, have);
        if (to >= 0) write_all(to, text, (size_t)(o - text));
        if (got <= 0) break;
    }
    report(name, cpu(), (double)records);
}

static uint8_t *value_line(uint8_t *o, uint64_t offset, int64_t time, const uint8_t *value, int64_t n) {
    (void)offset, (void)time;
    memcpy(o, value, (size_t)n);
    o[n] = '\n';
    return o + n + 1;
}

static uint8_t *number(uint8_t *o, uint64_t v) {
    uint8_t digits[20];
    int n = 0;
    do { digits[n++] = (uint8_t)('0' + v % 10); v /= 10; } while (v);
    while (n) *o++ = digits[--n];
    return o;
}

static uint8_t *text_line(uint8_t *o, uint64_t offset, int64_t time, const uint8_t *value, int64_t n) {
#define TEXT(s) (memcpy(o, s, sizeof(s) - 1), o += sizeof(s) - 1)
    TEXT("| offset: ");
    o = number(o, offset);
    TEXT(" CreateTime: ");
    o = number(o, (uint64_t)time);
    TEXT(" keySize: -1 valueSize: ");
    o = number(o, (uint64_t)n);
    TEXT(" sequence: -1 headerKeys: [] payload: ");
    memcpy(o, value, (size_t)n);
    o[n] = '\n';
    return o + n + 1;
}

static uint8_t *fields(uint8_t *o, uint64_t offset, int64_t time, const uint8_t *value, int64_t n) {
    keep += offset + (uint64_t)time + (uint64_t)n + (uint64_t)(uintptr_t)value;
    return o;
}

static void append(const char *dir, int count) {
    static uint8_t batch[200 * 1024];
    char path[4096];
    uint8_t value[100], *p = batch + HEADER;
    memset(value, 'x', sizeof value);
    for (int i = 0; i < count; i++) p = record(p, value, sizeof value, (uint32_t)i);
    size_t size = (size_t)(p - batch);
    snprintf(path, sizeof path, "%s/limit.log", dir);
    int fd = open_or_die(path, O_RDWR | O_CREAT | O_TRUNC);
    int rounds = (int)(200u * 1024 * 1024 / size);
    if (rounds > 200000) rounds = 200000;
    double began = cpu();
    for (int i = 0; i < rounds; i++) {
        keep += kl_crc32c(0, batch + 21, size - 21);
        be64(batch, (uint64_t)i * (uint64_t)count);
        write_all(fd, batch, size);
    }
    report("append", cpu() - began, (double)rounds * count);
    unlink(path);
}

static void lookup(void) {
    enum { N = 10 * 1024 * 1024 / 8, ASKS = 4000000 };
    uint8_t *index = malloc(N * 8ul);
    for (uint32_t i = 0; i < N; i++) { be32(index + 8ul * i, i * 3); be32(index + 8ul * i + 4, i * 100); }
    for (int tail = 0; tail < 2; tail++) {
        uint64_t seed = 88172645463325252ull;
        double began = cpu();
        for (int a = 0; a < ASKS; a++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            uint32_t target = tail ? N * 3u - (uint32_t)(seed % 1500) : (uint32_t)(seed % (N * 3ul)), low = 0, high = N;
            if (tail) low = N - 1024;
            while (high - low > 1) {
                uint32_t middle = (low + high) / 2;
                if (get32(index + 8ul * middle) <= target) low = middle;
                else high = middle;
            }
            keep += get32(index + 8ul * low + 4);
        }
        report(tail ? "lookup_tail" : "lookup_random", cpu() - began, ASKS);
    }
    free(index);
}

static void checksum(void) {
    static uint8_t data[65536];
    double began = cpu();
    int rounds = 200000;
    for (int i = 0; i < rounds; i++) { data[0] = (uint8_t)i; keep += kl_crc32c(0, data, sizeof data); }
    report("crc", cpu() - began, (double)rounds * sizeof data);
}

int main(int argc, char **argv) {
    const char *job = argc > 1 ? argv[1] : "";
    if (!strcmp(job, "produce") && argc == 4) produce(argv[2], argv[3]);
    else if (!strcmp(job, "consume") && argc == 4) walk("consume", argv[2], argv[3], value_line);
    else if (!strcmp(job, "dump") && argc == 4) walk("dump", argv[2], argv[3], text_line);
    else if (!strcmp(job, "scan") && argc == 3) walk("scan", argv[2], NULL, fields);
    else if (!strcmp(job, "append") && argc == 4) append(argv[2], atoi(argv[3]));
    else if (!strcmp(job, "lookup")) lookup();
    else if (!strcmp(job, "crc")) checksum();
    else { fprintf(stderr, "usage: limit produce|consume|dump|scan|append|lookup|crc [FILE...]\n"); return 2; }
    return 0;
}
