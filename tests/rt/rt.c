/* SPDX-License-Identifier: Apache-2.0 */
#include "rt.h"

#include "../../runtime/error.h"
#include "build_id.h"

#include <dirent.h>
#include <dlfcn.h>
#include <ftw.h>
#include <libgen.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

char *rt_folder(void)
{
    const char *base = getenv("TMPDIR");
    char *folder;
    assert_true(asprintf(&folder, "%s/kvkiln-rt-XXXXXX", base && *base ? base : "/tmp") > 0);
    assert_non_null(mkdtemp(folder));
    return folder;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

void rt_remove(char *folder)
{
    chmod(folder, 0700);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(folder);
}

char *rt_path(const char *folder, const char *name)
{
    char *path;
    assert_true(asprintf(&path, "%s/%s", folder, name) > 0);
    return path;
}

static int ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = suffix ? strlen(suffix) : 0;
    return n >= m && (!suffix || strcmp(name + n - m, suffix) == 0);
}

int rt_count(const char *folder, const char *suffix)
{
    int count = 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return 0;
    for (struct dirent *d; (d = readdir(dir)) != NULL;)
        count += strcmp(d->d_name, ".") && strcmp(d->d_name, "..") && ends_with(d->d_name, suffix);
    closedir(dir);
    return count;
}

char *rt_only_entry(const char *folder)
{
    char *path = NULL;
    assert_int_equal(rt_count(folder, ".kvko"), 1);
    DIR *dir = opendir(folder);
    for (struct dirent *d; (d = readdir(dir)) != NULL;)
        if (ends_with(d->d_name, ".kvko"))
            path = rt_path(folder, d->d_name);
    closedir(dir);
    return path;
}

void rt_write(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

void *rt_read(const char *path, size_t *size)
{
    struct stat st;
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    assert_int_equal(fstat(fileno(file), &st), 0);
    char *bytes = malloc((size_t)st.st_size + 1);
    *size = fread(bytes, 1, (size_t)st.st_size, file);
    fclose(file);
    return bytes;
}

/* ---- generator ---- */

struct rt_generator rt_generator;

static void add_line(char *text, size_t cap, const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    const char *drop = rt_generator.drop;
    if (!drop || strncmp(line, drop, strlen(drop)) != 0)
        snprintf(text + strlen(text), cap - strlen(text), "%s\n", line);
}

static void make_manifest(const struct gen_request *r, char *m, size_t cap)
{
    int soa = strcmp(r->layout, "soa") == 0, nvidia = strncmp(r->target, "sm_", 3) == 0;
    int dense = rt_generator.signature != NULL;
    int key = r->head_size << dense,
        value = dense ? r->value_head_size * 2 : r->value_head_size / 2;
    *m = '\0';
    add_line(m, cap, "kernel %s_%s_%s_d%d_g%d", r->kind, r->layout, r->target, r->head_size,
             r->gqa);
    add_line(m, cap, "kind %s", r->kind);
    add_line(m, cap, "target %s", r->target);
    add_line(m, cap, "format %s", !nvidia ? "hsaco" : r->assemble ? "cubin" : "ptx");
    add_line(m, cap, "abi %d", KVK_ABI_VERSION);
    add_line(m, cap, "entry %s k_%s 128 %d", r->kind, r->kind,
             strcmp(r->kind, "unified") == 0 ? 65536 : 2048);
    if (strcmp(r->kind, "merge") == 0)
        add_line(m, cap, "entry reduce k_reduce 64 0");
    add_line(m, cap, "rows 16");
    add_line(m, cap, "vectors 4");
    add_line(m, cap, "tile_tokens 64");
    add_line(m, cap, "layout.name %s", r->layout);
    add_line(m, cap, "layout.slot_bytes %d", key + value + 4);
    add_line(m, cap, "layout.slot_alignment 4");
    add_line(m, cap, "layout.key_offset 0");
    add_line(m, cap, "layout.key_bytes %d", key);
    add_line(m, cap, "layout.value_offset %d", key);
    add_line(m, cap, "layout.value_bytes %d", value);
    add_line(m, cap, "layout.record_bytes %d", soa ? key + value : key + value + 4);
    add_line(m, cap, "layout.fields 2");
    add_line(m, cap, "layout.field_offset.0 %d", key + value);
    add_line(m, cap, "layout.field_offset.1 %d", key + value + 2);
    add_line(m, cap, "layout.head_size %d", r->head_size);
    add_line(m, cap, "layout.value_head_size %d", r->value_head_size);
    add_line(m, cap, "layout.page_tokens %d", r->page_tokens);
    add_line(m, cap, "layout.gqa %d", r->gqa);
    if (rt_generator.signature)
        add_line(m, cap, "signature %s", rt_generator.signature);
    else
        add_line(m, cap, "signature kvk1:fake:%s:%d:%d:%d", r->layout, r->head_size,
                 r->value_head_size, r->page_tokens);
    if (rt_generator.extra)
        add_line(m, cap, "%s", rt_generator.extra);
}

void *rt_object(const struct gen_request *request, size_t *bytes)
{
    static const char cubin[] = "\177ELF not really", ptx[] = ".version 9.0\n.target sm_90a\n";
    char manifest[4096];
    void *out;
    make_manifest(request, manifest, sizeof manifest);
    struct object o = {.key = "the generator's own",
                       .key_bytes = 19,
                       .manifest = manifest,
                       .manifest_bytes = strlen(manifest)};
    o.code = request->assemble ? cubin : ptx;
    o.code_bytes = request->assemble ? sizeof cubin : sizeof ptx - 1;
    return object_seal(&o, &out, bytes, NULL) == KVK_OK ? out : NULL; /* no memory: faults.h */
}

static kvk_status fake_compile(const struct gen_request *request, unsigned emit,
                               struct gen_artifacts *out, kvk_error *err)
{
    struct rt_generator *g = &rt_generator;
    int running = ++g->running, most = g->most_running;
    while (running > most && !atomic_compare_exchange_weak(&g->most_running, &most, running))
        ;
    g->compiles++;
    if (g->delay_ms)
        usleep((useconds_t)g->delay_ms * 1000);
    g->running--;
    if (g->fail &&
        (!g->fail_kind || g->fail_kind == request->kind[0] || g->fail_kind == request->kind[2])) {
        if (err)
            *err =
                (kvk_error){.status = g->fail, .where = "fake", .text = "the fake generator fails"};
        return g->fail;
    }
    if (emit & 1u << GEN_EMIT_OBJECT)
        out->data[GEN_EMIT_OBJECT] = rt_object(request, &out->bytes[GEN_EMIT_OBJECT]);
    if (emit & 1u << GEN_EMIT_OBJECT && !out->data[GEN_EMIT_OBJECT])
        return error_set(err, KVK_E_MEMORY, "fake", "no memory for an object");
    return KVK_OK;
}

static kvk_status fake_spec_text(const char *name, const char *dirs, char **text, kvk_error *err)
{
    (void)dirs;
    rt_generator.spec_texts++;
    if (asprintf(text, "spec 1\nname %s\nlayouts soa aos\n", name) > 0)
        return KVK_OK;
    return error_set(err, KVK_E_MEMORY, "fake", "no memory for a text");
}

static void fake_free(struct gen_artifacts *a)
{
    for (int i = 0; i < GEN_EMIT_COUNT; i++)
        free(a->data[i]);
}

/* Written only when it changes, which no case does while others read it. */
const struct gen_api *rt_generator_table(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static struct gen_api api;
    const struct rt_generator *g = &rt_generator;
    const char *build_id = g->build_id ? g->build_id : KVK_BUILD_ID;
    uint32_t version = g->version ? g->version : KVK_GEN_API_VERSION;
    pthread_mutex_lock(&mutex);
    if (api.version != version || api.build_id != build_id)
        api = (struct gen_api){.version = version,
                               .build_id = build_id,
                               .spec_text = fake_spec_text,
                               .compile = fake_compile,
                               .artifacts_free = fake_free};
    pthread_mutex_unlock(&mutex);
    return &api;
}

void rt_generator_reset(void)
{
    memset(&rt_generator, 0, sizeof rt_generator);
    kvk_register_generator(rt_generator_table);
}

/* ---- fake drivers ---- */

void rt_with_fakes(char **argv)
{
    static const char *const links[][2] = {{"libfake_cuda.so", "libcuda.so.1"},
                                           {"libfake_hip.so", "libamdhip64.so.6"}};
    char self[PATH_MAX], folder[PATH_MAX + 16], from[PATH_MAX + 64], to[PATH_MAX + 64];
    if (getenv("KVKILN_RT_FAKES"))
        return;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0)
        exit(1);
    self[n] = '\0';
    char *dir = dirname(strdup(self));
    snprintf(folder, sizeof folder, "%s/fakes", dir);
    mkdir(folder, 0777);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        snprintf(from, sizeof from, "%s/%s", dir, links[i][0]);
        snprintf(to, sizeof to, "%s/%s", folder, links[i][1]);
        if (symlink(from, to) != 0 && access(to, F_OK) != 0)
            perror(to);
    }
    setenv("LD_LIBRARY_PATH", folder, 1);
    setenv("KVKILN_RT_FAKES", "1", 1);
    execv(self, argv);
    perror(self);
    exit(1);
}

void rt_topology_node(const char *folder, int number, const char *text)
{
    char name[16];
    snprintf(name, sizeof name, "%d", number);
    char *dir = rt_path(folder, name), *file = rt_path(dir, "properties");
    mkdir(dir, 0700);
    rt_write(file, text, strlen(text));
    free(dir);
    free(file);
}

char *rt_topology(void)
{
    char *folder = rt_folder();
    rt_topology_node(folder, 0, "cpu_cores_count 64\nsimd_count 0\ngfx_target_version 0\n");
    rt_topology_node(folder, 1,
                     "cpu_cores_count 0\nsimd_count 1216\nsimd_per_cu 4\n"
                     "gfx_target_version 90402\nlocation_id 768\ndomain 0\n");
    rt_topology_node(folder, 2,
                     "simd_count 192\nsimd_per_cu 2\ngfx_target_version 110000\n"
                     "location_id 49408\ndomain 0\n");
    return folder;
}

struct fake *rt_fake(const char *library)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL), *symbol;
    if (!handle)
        fail_msg("%s", dlerror());
    symbol = dlsym(handle, "fake_state");
    assert_non_null(symbol);
    struct fake *(*get)(void);
    memcpy(&get, &symbol, sizeof get);
    struct fake *fake = get();
    *fake = (struct fake)FAKE_BEGINNING;
    return fake;
}

kvk_context *rt_open(const char *cache)
{
    struct kvk_options options = KVK_INIT(struct kvk_options);
    kvk_context *ctx;
    kvk_error err = {0};
    options.device = "cuda:0";
    options.cache_dir = cache ? cache : "";
    if (kvk_open(&options, &ctx, &err) != KVK_OK)
        fail_msg("%s: %s", err.where, err.text);
    return ctx;
}

struct kvk_model rt_model(void)
{
    struct kvk_model model = KVK_INIT(struct kvk_model);
    model.spec = "turboquant_k8v4";
    model.kv_heads = 2;
    model.query_heads = 8;
    model.head_size = 128;
    return model;
}

struct rt_log rt_log;

void rt_log_line(void *data, kvk_log_level level, const char *line)
{
    (void)data;
    rt_log.warnings += level == KVK_LOG_WARNING;
    snprintf(rt_log.last, sizeof rt_log.last, "%s", line);
}

kvk_status rt_prepare(const char *cache, const char **origin, kvk_error *err)
{
    struct kvk_options options = KVK_INIT(struct kvk_options);
    struct kvk_kernel_info info = KVK_INIT(struct kvk_kernel_info);
    struct kvk_model model = rt_model();
    const kvk_kernels *k;
    kvk_context *ctx;
    rt_log.warnings = 0;
    options.device = "cuda:0";
    options.cache_dir = cache;
    options.log = rt_log_line;
    kvk_status status = kvk_open(&options, &ctx, err);
    if (status)
        return status;
    model.kinds = KVK_STORE | KVK_COPY;
    status = kvk_prepare(ctx, &model, &k, err);
    if (!status && origin && kvk_kernel(k, KVK_COPY, &info, NULL) == KVK_OK)
        *origin = info.origin; /* text of the library */
    kvk_close(ctx);
    return status;
}

void rt_store(kvk_context *ctx, kvk_stream stream)
{
    struct kvk_model model = rt_model();
    struct kvk_store_args store = KVK_INIT(struct kvk_store_args);
    const kvk_kernels *k;
    void *memory;
    kvk_error err = {0};
    model.kinds = KVK_STORE;
    assert_int_equal(kvk_prepare(ctx, &model, &k, &err), KVK_OK);
    assert_int_equal(kvk_alloc(ctx, 1 << 16, &memory, &err), KVK_OK);
    store.pool = (struct kvk_pool){.data = memory, .pages = 1};
    store.key.data = store.value.data = memory;
    store.slots = memory;
    store.rows = 1;
    if (kvk_store(k, &store, stream, &err))
        fail_msg("%s", err.text);
}

void *rt_at(uintptr_t offset) { return (void *)(0x10000 + offset); }

struct kvk_decode_args rt_decode_args(void)
{
    struct kvk_decode_args a = KVK_INIT(struct kvk_decode_args);
    a.pool = (struct kvk_pool){.data = rt_at(0), .pages = 10};
    a.query.data = rt_at(16);
    a.out.data = rt_at(32);
    a.block_table = rt_at(48);
    a.table_stride = 4;
    a.lengths = rt_at(64);
    a.sequences = 3;
    a.max_context = 64;
    a.workspace = rt_at(4096);
    a.workspace_bytes = 1 << 24;
    return a;
}
