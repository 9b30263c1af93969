/* SPDX-License-Identifier: Apache-2.0 */
/*
** Cache entries, through everything that a prepare and the launches do with one, short of running code.
**
** Input: a byte that names the kind (bits 0-2) and says whether the layout is soa (bit 4) and whether what
** follows is the entry itself (bit 3) or the manifest (but its line "abi"), a NUL, and the code of an entry
** that is sealed under the right key.
*/
#include "fuzz.h"

#include "build_id.h"
#include "runtime/context.h"
#include "runtime/key.h"

#include <string.h>
#include <unistd.h>

const char fuzz_name[] = "cache";

static char folder[64];
static unsigned launched;

static void remove_folder(void) { rmdir(folder); }

static kvk_status launch_nothing(void *device, const struct driver_entry *entry,
                                 struct driver_grid grid, const void *params, size_t bytes,
                                 kvk_stream stream, kvk_error *err)
{
    (void)device, (void)params, (void)bytes, (void)stream, (void)err;
    FUZZ_CHECK(entry->function && entry->threads && grid.ctas);
    launched++;
    return KVK_OK;
}

static struct kvk_model make_model(int kind, int soa)
{
    struct kvk_model model = KVK_INIT(struct kvk_model);
    model.spec = "turboquant_k8v4";
    model.layout = soa ? "soa" : "aos";
    model.kv_heads = 2;
    model.query_heads = 8;
    model.head_size = 128;
    model.kinds = 1u << kind;
    return model;
}

/* The key that kvk_prepare will look for. */
static char *make_key(const kvk_context *ctx, int kind, int soa)
{
    static const char *const kinds[] = {"store", "decode", "unified", "dequant",
                                        "merge", "copy",   "convert"};
    const char *name, *text = NULL;
    extern int embedded_spec_text(int, const char **, const char **);
    for (int i = 0; embedded_spec_text(i, &name, &text) && strcmp(name, "turboquant_k8v4"); i++)
        ;
    const struct gen_request r = {.spec_text = text,
                                  .kind = kinds[kind],
                                  .layout = soa ? "soa" : "aos",
                                  .target = ctx->info.target,
                                  .head_size = 128,
                                  .value_head_size = 128,
                                  .gqa = 4,
                                  .page_tokens = 16,
                                  .dtype = KVK_BFLOAT16};
    return key_make(&r, KVK_BUILD_ID, "none");
}

static void put_entry(const char *key, const uint8_t *data, size_t size, int raw, char path[128])
{
    char hex[KEY_HASH_CHARS];
    void *sealed = NULL;
    size_t bytes = size;
    if (!raw) {
        size_t text = strnlen((const char *)data, size);
        char *manifest;
        int n = asprintf(&manifest, "abi %d\n%.*s", KVK_ABI_VERSION, (int)text, data);
        FUZZ_CHECK(n > 0);
        const struct object o = {.key = key,
                                 .key_bytes = strlen(key),
                                 .manifest = manifest,
                                 .manifest_bytes = (size_t)n,
                                 .code = data + (text < size ? text + 1 : text),
                                 .code_bytes = text < size ? size - text - 1 : 0};
        FUZZ_CHECK(object_seal(&o, &sealed, &bytes, NULL) == KVK_OK);
        free(manifest);
    }
    key_hash(key, hex);
    snprintf(path, 128, "%s/%s.kvko", folder, hex);
    FILE *out = fopen(path, "wb");
    FUZZ_CHECK(out && fwrite(sealed ? sealed : data, 1, bytes, out) == bytes);
    fclose(out);
    free(sealed);
}

static void attend(const kvk_kernels *k, const struct kvk_pool *pool)
{
    static char room[64] __attribute__((aligned(16)));
    struct kvk_decode_args d = KVK_INIT(struct kvk_decode_args);
    struct kvk_unified_args u = KVK_INIT(struct kvk_unified_args);
    struct kvk_limits limits = {sizeof limits, 64, 4, 4096, 1 << 20, 0};
    d.pool = u.pool = *pool;
    d.query.data = d.out.data = u.query.data = u.out.data = room;
    d.block_table = u.block_table = room;
    d.lengths = u.lengths = u.query_start = (const int32_t *)room;
    d.sequences = u.sequences = 3;
    d.max_context = 1 << 20;
    d.table_stride = u.table_stride = 1 << 16;
    u.tokens = 1000;
    d.workspace = room;
    for (int i = 0; i < 2; i++) {
        limits.batch_invariant = d.batch_invariant = i;
        d.workspace_bytes = kvk_workspace_bytes(k, &limits);
        kvk_decode(k, &d, NULL, NULL);
    }
    kvk_unified(k, &u, NULL, NULL);
}

static void launch_all(const kvk_kernels *k)
{
    static char room[64] __attribute__((aligned(16)));
    struct kvk_layout layout = KVK_INIT(struct kvk_layout);
    struct kvk_store_args s = KVK_INIT(struct kvk_store_args);
    struct kvk_dequant_args q = KVK_INIT(struct kvk_dequant_args);
    struct kvk_merge_args m = KVK_INIT(struct kvk_merge_args);
    struct kvk_copy_args c = KVK_INIT(struct kvk_copy_args);
    const struct kvk_pool pool = {.data = room, .pages = 100};
    FUZZ_CHECK(kvk_layout(k, &layout, NULL) == KVK_OK);
    FUZZ_CHECK(layout.slot_bytes && layout.page_bytes >= layout.slot_bytes);
    s.pool = q.pool = c.from = c.to = pool;
    s.key.data = s.value.data = q.key.data = q.value.data = room;
    s.slots = q.block_table = c.from_index = c.to_index = room;
    s.rows = q.rows = m.rows = c.items = 1000;
    q.out_start = (const int32_t *)room;
    q.sequences = 3;
    q.table_stride = 1 << 16;
    m.a = m.b = m.out = (struct kvk_partial){.out.data = room, .lse = (float *)room};
    kvk_store(k, &s, NULL, NULL);
    kvk_dequant(k, &q, NULL, NULL);
    kvk_merge(k, &m, NULL, NULL);
    c.pages = 1;
    kvk_copy(k, NULL, &c, NULL, NULL);
    attend(k, &pool);
}

static kvk_context *open_context(void)
{
    struct kvk_options options = KVK_INIT(struct kvk_options);
    kvk_context *ctx;
    options.device = "host";
    options.cache_dir = folder;
    options.compile = KVK_COMPILE_NEVER;
    FUZZ_CHECK(kvk_open(&options, &ctx, NULL) == KVK_OK);
    strcpy(ctx->info.target, "x86-64-v3"); /* whatever this machine is */
    return ctx;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct driver driver = driver_host;
    struct kvk_kernel_info info = KVK_INIT(struct kvk_kernel_info);
    const kvk_kernels *kernels;
    kvk_error err = {0};
    char path[128];
    if (!*folder) {
        snprintf(folder, sizeof folder, "%s/kvkiln-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        FUZZ_CHECK(mkdtemp(folder));
        atexit(remove_folder);
    }
    if (!size || (*data & 7) >= KIND_COUNT)
        return 0;
    int kind = *data & 7, raw = *data >> 3 & 1, soa = *data >> 4 & 1;
    kvk_context *ctx = open_context();
    driver.launch = launch_nothing;
    ctx->driver = &driver;
    char *key = make_key(ctx, kind, soa);
    put_entry(key, data + 1, size - 1, raw, path);
    const struct kvk_model model = make_model(kind, soa);
    if (kvk_prepare(ctx, &model, &kernels, &err) == KVK_OK) {
        FUZZ_CHECK(kvk_kernel(kernels, (kvk_kind_bits)model.kinds, &info, NULL) == KVK_OK);
        FUZZ_CHECK(strcmp(info.origin, "cache") == 0);
        launch_all(kernels);
    } else {
        FUZZ_CHECK(*err.text && !strchr(err.text, '\n'));
    }
    unlink(path);
    free(key);
    ctx->driver = &driver_host;
    kvk_close(ctx);
    return 0;
}
