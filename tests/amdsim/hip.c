/* SPDX-License-Identifier: Apache-2.0 */
/*
** hip.c - a libamdhip64 whose device is the simulator: the runtime, its launches and every suite
** run on it unchanged.
**
** AMDSIM_TARGET     gfx942 gfx950 gfx1100 gfx1200 gfx1201: what the device is
** AMDSIM_BACKWARDS  1: work-groups and waves run in the opposite order
** AMDSIM_JITTER     1: approximations are off by an ulp here and there
** AMDSIM_LISTINGS   folder that keeps disassemblies
** AMDSIM_COVERAGE   file that lines "INSN target mnemonic executed" and "KERNEL target name
**                   instructions executed" are appended to
*/
#include "access.h"
#include "image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>

#define CALL(name, ...)                                                                            \
    __attribute__((visibility("default"))) int name(__VA_ARGS__);                                  \
    int name(__VA_ARGS__)

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_BINARY_FOR_GPU = 209,
    UNKNOWN_ERROR = 999,
    NOT_FOUND = 500,
    LAUNCH_FAILURE = 719,
    KERNELS_MOST = 4,
    MODULES_MOST = 4096,
    COMPUTE_UNITS_RESIDENT = 2,
    HOST_TO_DEVICE = 1,
    DEVICE_TO_DEVICE = 3
};

struct module {
    struct image image;
    struct kernel kernels[KERNELS_MOST];
    int count;
};

static struct memory memory;
static struct module *modules[MODULES_MOST];

static const char *target(void)
{
    const char *name = getenv("AMDSIM_TARGET");
    return name ? name : "gfx942";
}

static bool flag(const char *name)
{
    const char *value = getenv(name);
    return value && *value == '1';
}

/* ---- coverage ---- */

struct line {
    const char *name;
    uint64_t hits;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct line *)a)->name, ((const struct line *)b)->name);
}

static size_t collect(const struct program *p, struct line *lines)
{
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < p->count; i++) {
        lines[n++] = (struct line){p->code[i].op->name, p->code[i].hits};
        if (p->code[i].second)
            lines[n++] = (struct line){p->code[i].second->op->name, p->code[i].hits};
    }
    qsort(lines, n, sizeof *lines, by_name);
    for (size_t i = 0; i < n; i++) {
        if (kept && strcmp(lines[kept - 1].name, lines[i].name) == 0)
            lines[kept - 1].hits += lines[i].hits;
        else
            lines[kept++] = lines[i];
    }
    return kept;
}

static void report_kernels(FILE *out, const struct module *m)
{
    for (int k = 0; k < m->count; k++) {
        const struct program *p = &m->image.program;
        uint64_t executed = 0, total = 0;
        for (int i = program_find(p, m->kernels[k].launch.entry); i >= 0 && i < (int)p->count;
             i++) {
            bool next = false;
            for (int other = 0; other < m->count; other++)
                next |= other != k && p->code[i].address == m->kernels[other].launch.entry;
            if (next)
                break;
            total++;
            executed += p->code[i].hits > 0;
        }
        fprintf(out, "KERNEL %s %s %llu %llu\n", m->image.target, m->kernels[k].name,
                (unsigned long long)total, (unsigned long long)executed);
    }
}

static void report_coverage(const struct module *m)
{
    const char *path = getenv("AMDSIM_COVERAGE");
    struct line *lines = path ? malloc((2 * m->image.program.count + 1) * sizeof *lines) : NULL;
    FILE *out = lines ? fopen(path, "ae") : NULL;
    if (out) {
        flock(fileno(out), LOCK_EX);
        size_t n = collect(&m->image.program, lines);
        for (size_t i = 0; i < n; i++)
            fprintf(out, "INSN %s %s %llu\n", m->image.target, lines[i].name,
                    (unsigned long long)lines[i].hits);
        report_kernels(out, m);
        fclose(out);
    }
    free(lines);
}

static void close_module(struct module *m)
{
    struct range ignored;
    report_coverage(m);
    memory_remove(&memory, m->image.memory, &ignored);
    image_close(&m->image);
    free(m);
}

__attribute__((destructor)) static void close_all(void)
{
    for (int i = 0; i < MODULES_MOST; i++)
        if (modules[i])
            close_module(modules[i]);
    free(memory.ranges);
}

/* ---- the device ---- */

__attribute__((visibility("default"))) const char *hipGetErrorName(int code);
const char *hipGetErrorName(int code)
{
    return code == LAUNCH_FAILURE ? "the simulator stopped the kernel" : "hipError";
}

CALL(hipInit, unsigned flags) { return flags ? INVALID_VALUE : SUCCESS; }
CALL(hipRuntimeGetVersion, int *version)
{
    *version = 60000000;
    return SUCCESS;
}
CALL(hipGetDeviceCount, int *count)
{
    *count = 1;
    return SUCCESS;
}
CALL(hipGetDevice, int *device)
{
    *device = 0;
    return SUCCESS;
}
CALL(hipSetDevice, int device) { return device ? INVALID_VALUE : SUCCESS; }
CALL(hipDeviceGetName, char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "simulated %s", target());
    return device ? INVALID_VALUE : SUCCESS;
}
CALL(hipDeviceTotalMem, size_t *bytes, int device)
{
    *bytes = (size_t)1 << 36;
    return device ? INVALID_VALUE : SUCCESS;
}
CALL(hipDeviceGetPCIBusId, char *text, int bytes, int device)
{
    snprintf(text, (size_t)bytes, "0000:03:00.0");
    return device ? INVALID_VALUE : SUCCESS;
}
CALL(hipDeviceSynchronize, void) { return SUCCESS; }

/* ---- modules ---- */

CALL(hipModuleLoadData, void **module, const void *image)
{
    char error[1024] = "";
    struct module *m = calloc(1, sizeof *m);
    int slot = 0;
    while (slot < MODULES_MOST && modules[slot])
        slot++;
    if (!m || slot == MODULES_MOST)
        return OUT_OF_MEMORY;
    bool bad = image_open(&m->image, image, error, sizeof error) != 0;
    if (bad || strcmp(m->image.target, target()) != 0) {
        fprintf(stderr, "amdsim: %s\n", bad ? error : "code object of another target");
        image_close(&m->image);
        free(m);
        return bad ? UNKNOWN_ERROR : NO_BINARY_FOR_GPU; /* what the simulator lacks is no refusal */
    }
    memory_add(&memory, (struct range){m->image.memory, NULL, m->image.bytes, true});
    *module = modules[slot] = m;
    return SUCCESS;
}

CALL(hipModuleUnload, void *module)
{
    for (int i = 0; i < MODULES_MOST; i++)
        if (modules[i] == module) {
            modules[i] = NULL;
            close_module(module);
            return SUCCESS;
        }
    return INVALID_VALUE;
}

CALL(hipModuleGetFunction, void **function, void *module, const char *name)
{
    char error[256];
    struct module *m = module;
    for (int i = 0; i < m->count; i++)
        if (strcmp(m->kernels[i].name, name) == 0) {
            *function = &m->kernels[i];
            return SUCCESS;
        }
    if (m->count == KERNELS_MOST)
        return OUT_OF_MEMORY;
    if (image_kernel(&m->image, name, &m->kernels[m->count], error, sizeof error)) {
        fprintf(stderr, "amdsim: %s: %s\n", name, error);
        return NOT_FOUND;
    }
    *function = &m->kernels[m->count++];
    return SUCCESS;
}

CALL(hipFuncGetAttribute, int *value, int attribute, void *function)
{
    const struct kernel *k = function;
    switch (attribute) {
    case 1: *value = (int)k->launch.shared_bytes; break;
    case 3: *value = (int)k->launch.scratch_bytes; break;
    default: *value = k->image->program.vgprs;
    }
    return SUCCESS;
}

CALL(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor, int *ctas, void *function, int threads,
     size_t shared)
{
    (void)function, (void)threads, (void)shared;
    *ctas = COMPUTE_UNITS_RESIDENT;
    return SUCCESS;
}

static int run(const struct kernel *k, const struct launch *l)
{
    struct sim *sim = calloc(1, sizeof *sim);
    if (!sim)
        return OUT_OF_MEMORY;
    sim->program = &k->image->program;
    sim->memory = &memory;
    sim->backwards = flag("AMDSIM_BACKWARDS");
    sim->jitter = flag("AMDSIM_JITTER");
    int status = sim_launch(sim, l);
    if (status)
        fprintf(stderr, "amdsim: %s, %s: %s\n", k->image->target, k->name, sim->error);
    free(sim);
    return status ? LAUNCH_FAILURE : SUCCESS;
}

CALL(hipModuleLaunchKernel, void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
     unsigned by, unsigned bz, unsigned shared, void *stream, void **params, void **extra)
{
    const struct kernel *k = function;
    (void)stream;
    if (gy != 1 || gz != 1 || by != 1 || bz != 1 || params || extra[0] != (void *)1 ||
        extra[2] != (void *)2 || extra[4] != (void *)3)
        return INVALID_VALUE;
    size_t bytes = *(const size_t *)extra[3];
    if (bytes != k->param_bytes) {
        fprintf(stderr, "amdsim: %s: %zu bytes of parameters, the kernel has %u\n", k->name, bytes,
                k->param_bytes);
        return INVALID_VALUE;
    }
    struct launch l = k->launch;
    uint8_t *copy = malloc(bytes);
    struct range range = {copy, NULL, bytes, true};
    if (!copy)
        return OUT_OF_MEMORY;
    memcpy(copy, extra[1], bytes);
    memory_add(&memory, range);
    l.grid = gx;
    l.threads = bx;
    l.shared_bytes += shared;
    l.params = copy;
    int status = run(k, &l);
    memory_remove(&memory, copy, &range);
    free(copy);
    return status;
}

/* ---- memory ---- */

static void *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

CALL(hipMalloc, void **out, size_t bytes)
{
    struct range r = {reserve(bytes), reserve(bytes), bytes, false};
    if (!r.from || !r.known)
        return OUT_OF_MEMORY;
    memory_add(&memory, r);
    *out = r.from;
    return SUCCESS;
}

CALL(hipFree, void *from)
{
    struct range r;
    if (!from)
        return SUCCESS;
    if (!memory_remove(&memory, from, &r))
        return INVALID_VALUE;
    munmap(r.from, r.bytes);
    munmap(r.known, r.bytes);
    return SUCCESS;
}

static int copy(void *to, const void *from, size_t bytes, int kind)
{
    const struct range *r =
        memory_find(&memory, (uintptr_t)(kind == HOST_TO_DEVICE ? to : from), bytes);
    const struct range *q =
        kind == DEVICE_TO_DEVICE ? memory_find(&memory, (uintptr_t)to, bytes) : r;
    if (!r || !q || !q->known) {
        fprintf(stderr, "amdsim: a copy of %zu bytes leaves its allocation\n", bytes);
        return INVALID_VALUE;
    }
    memmove(to, from, bytes);
    if (kind == HOST_TO_DEVICE)
        memset(r->known + ((uint8_t *)to - r->from), 0xff, bytes);
    if (kind == DEVICE_TO_DEVICE)
        memmove(q->known + ((uint8_t *)to - q->from), r->known + ((const uint8_t *)from - r->from),
                bytes);
    return SUCCESS;
}

CALL(hipMemcpy, void *to, const void *from, size_t bytes, int kind)
{
    return copy(to, from, bytes, kind);
}
CALL(hipMemcpyAsync, void *to, const void *from, size_t bytes, int kind, void *stream)
{
    (void)stream;
    return copy(to, from, bytes, kind);
}

CALL(hipMemset, void *to, int byte, size_t bytes)
{
    const struct range *r = memory_find(&memory, (uintptr_t)to, bytes);
    if (!r || !r->known)
        return INVALID_VALUE;
    memset(to, byte, bytes);
    memset(r->known + ((uint8_t *)to - r->from), 0xff, bytes);
    return SUCCESS;
}

CALL(hipMemsetD32Async, void *to, int value, size_t words, void *stream)
{
    const struct range *r = memory_find(&memory, (uintptr_t)to, 4 * words);
    (void)stream;
    if (!r || !r->known)
        return INVALID_VALUE;
    for (size_t i = 0; i < words; i++)
        memcpy((uint8_t *)to + 4 * i, &value, 4);
    memset(r->known + ((uint8_t *)to - r->from), 0xff, 4 * words);
    return SUCCESS;
}

/* ---- streams and events: everything is done when a call returns ---- */

static char handle;
CALL(hipStreamCreateWithFlags, void **stream, unsigned flags)
{
    (void)flags;
    *stream = &handle;
    return SUCCESS;
}
CALL(hipStreamDestroy, void *stream) { return stream == &handle ? SUCCESS : INVALID_VALUE; }
CALL(hipEventCreate, void **event)
{
    *event = &handle;
    return SUCCESS;
}
CALL(hipEventDestroy, void *event) { return event == &handle ? SUCCESS : INVALID_VALUE; }
CALL(hipEventRecord, void *event, void *stream)
{
    (void)stream;
    return event == &handle ? SUCCESS : INVALID_VALUE;
}
CALL(hipEventSynchronize, void *event) { return event == &handle ? SUCCESS : INVALID_VALUE; }
CALL(hipEventElapsedTime, float *ms, void *from, void *to)
{
    *ms = 1;
    return from == to ? SUCCESS : INVALID_VALUE;
}
