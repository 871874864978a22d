/* libFuzzer's two entries: starts Python once, then gives every input to one callable of fuzz/.

   The input is libFuzzer's own copy, of exactly its size, seen through a memoryview: the sanitizer notices any access
   outside it, here and in the compiled modules. An exception that the target lets through is a finding, and so is a
   view of the input that somebody still holds afterwards. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kcrc.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

static PyObject *target;
static int seals;

static void fail(const char *what) {
    fprintf(stderr, "fuzz: %s\n", what);
    if (PyErr_Occurred()) {
        PyErr_Print();
    }
    abort();
}

static const char *setting(const char *name) {
    const char *value = getenv(name);
    if (value == NULL) {
        fprintf(stderr, "fuzz: %s is not set; ci/fuzz.sh sets it\n", name);
        exit(2);
    }
    return value;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    PyConfig config;
    PyObject *module;
    PyObject *flag;
    char name[256];
    (void)argc;
    (void)argv;
    snprintf(name, sizeof name, "fuzz.%s", setting("KAFKALOG_FUZZ_TARGET"));
    PyConfig_InitPythonConfig(&config);
    config.install_signal_handlers = 0;
    PyConfig_SetBytesString(&config, &config.executable, setting("KAFKALOG_FUZZ_PYTHON"));
    if (PyStatus_Exception(Py_InitializeFromConfig(&config))) {
        fail("Python does not start");
    }
    module = PyImport_ImportModule(name);
    target = module ? PyObject_GetAttrString(module, "run") : NULL;
    flag = target ? PyObject_GetAttrString(module, "SEALS") : NULL;
    if (flag == NULL) {
        fail(name);
    }
    seals = PyObject_IsTrue(flag);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    PyObject *view = PyMemoryView_FromMemory((char *)data, (Py_ssize_t)size, PyBUF_READ);
    PyObject *result = view ? PyObject_CallOneArg(target, view) : NULL;
    if (result == NULL) {
        fail("the target raised");
    }
    Py_DECREF(result);
    if (((PyMemoryViewObject *)view)->mbuf->exports != 1 || Py_REFCNT(view) != 1) {
        fail("a view of the input is still held");
    }
    Py_DECREF(view);
    return 0;
}

static void put32(uint8_t *p, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(p, &value, 4);
}

static uint32_t get32(const uint8_t *p) {
    uint32_t value;
    memcpy(&value, p, 4);
    return __builtin_bswap32(value);
}

/* Makes the checksums of the batches right; `fit` makes the last size field end with the data. */
static void seal(uint8_t *data, size_t size, int fit) {
    while (size >= 26) {
        uint64_t whole = (uint64_t)get32(data + 8) + 12;
        if (fit && (whole > size || whole < 26)) {
            whole = size;
            put32(data + 8, (uint32_t)(size - 12));
        }
        if (whole > size || whole < 26) {
            return;
        }
        if (data[16] == 2) {
            put32(data + 17, kl_crc32c(0, data + 21, whole - 21));
        } else if (data[16] < 2) {
            put32(data + 12, kl_crc32(0, data + 16, whole - 16));
        }
        data += whole;
        size -= whole;
    }
}

/* No mutation finds a checksum by chance: most inputs of a target of batches are given theirs. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed) {
    size = LLVMFuzzerMutate(data, size, max_size);
    if (seals && seed % 4) {
        seal(data, size, seed % 4 > 1);
    }
    return size;
}
