/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_trouble.c - the table "Trouble" of docs/embedding.md: each of its messages is met here as a program would meet
** it, with its status. tests/unit/test_embedding.py holds the table against the sources.
*/
#include "rt_pack.h"

#include "faults.h"

#include "../../gen/spec.h"
#include "../page.h"

static const char *topology; /* of a folder of ours: hip:1 is a gfx942 */
#define HIP_TOPOLOGY_FOLDER topology
#include "../../runtime/driver_hip.c" /* instead of the library's */

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct page page;
static struct fake *cuda, *hip;
static char *folder;

/* What stands before the reason, which is a row of its own. */
static const char *const wrappers[] = {"cannot be used: ", "nor does PTX help: "};

/* The message is on the page, and so is the reason that it gives. */
static void met(kvk_status status, const kvk_error *err)
{
    if (status == KVK_OK)
        fail_msg("nothing failed");
    if (!page_met(&page, status, err->text))
        fail_msg("not in docs/embedding.md: %s: %s", kvk_status_name(status), err->text);
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++) {
        const char *reason = strstr(err->text, wrappers[i]);
        if (reason && !page_met(&page, status, reason + strlen(wrappers[i])))
            fail_msg("not in docs/embedding.md: %s: %s", kvk_status_name(status), reason);
    }
}

static int setup(void **state)
{
    (void)state;
    unsetenv("KVKILN_PACKS");
    rt_generator_reset();
    cuda = rt_fake("libcuda.so.1");
    hip = rt_fake("libamdhip64.so.6");
    topology = folder = rt_topology();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    faults_disarm();
    faults.missing = NULL;
    rt_remove(folder);
    return 0;
}

static struct kvk_options options_of(const char *device)
{
    struct kvk_options o = KVK_INIT(struct kvk_options);
    o.device = device;
    o.cache_dir = "";
    return o;
}

static void open_fails(const struct kvk_options *options)
{
    kvk_context *ctx;
    kvk_error err = {0};
    kvk_status status = kvk_open(options, &ctx, &err);
    met(status, &err);
}

static void device_fails(const char *name)
{
    struct kvk_options o = options_of(name);
    open_fails(&o);
}

static void prepare_fails(const struct kvk_options *options, const struct kvk_model *model)
{
    kvk_context *ctx;
    const kvk_kernels *k;
    kvk_error err = {0};
    if (kvk_open(options, &ctx, &err))
        fail_msg("%s", err.text);
    kvk_status status = kvk_prepare(ctx, model, &k, &err);
    kvk_close(ctx);
    met(status, &err);
}

/* ---- generators ---- */

static struct gen_api api;

static const struct gen_api *no_table(void) { return NULL; }
static const struct gen_api *own_table(void) { return &api; }

static kvk_status compile_nothing(const struct gen_request *request, unsigned emit,
                                  struct gen_artifacts *out, kvk_error *err)
{
    (void)request, (void)emit, (void)out, (void)err;
    return KVK_OK;
}

static void generators(void **state)
{
    struct kvk_options o = options_of("cuda:0");
    const struct kvk_model model = rt_model();

    (void)state;
    rt_generator.version = 99;
    prepare_fails(&o, &model);
    rt_generator.version = 0;
    rt_generator.build_id = "other";
    prepare_fails(&o, &model);
    rt_generator.build_id = NULL;
    kvk_register_generator(no_table);
    prepare_fails(&o, &model);
    api = *rt_generator_table();
    api.compile = compile_nothing;
    kvk_register_generator(own_table);
    prepare_fails(&o, &model);
    o.generator = "/nowhere/libkvkiln-gen.so";
    prepare_fails(&o, &model);
    o.generator = "libcuda.so.1"; /* a library that is no generator */
    prepare_fails(&o, &model);
}

/* ---- packs ---- */

/* The pack with some bytes of its head changed. */
static void changed_pack(size_t at, const char *bytes, size_t n)
{
    struct kvk_options o = options_of("cuda:0");
    char *file = rt_path(folder, "some.kvkpack");
    size_t size;
    unsigned char *pack = rt_pack(0, &size);

    memcpy(pack + at, bytes, n);
    rt_pack_reseal(pack);
    rt_write(file, pack, size);
    o.packs = file;
    open_fails(&o);
    free(pack);
    free(file);
}

static void packs(void **state)
{
    struct kvk_options o = options_of("cuda:0");
    const struct kvk_model model = rt_model();

    (void)state;
    o.compile = KVK_COMPILE_NEVER;
    prepare_fails(&o, &model);
    o.packs = "/nowhere/x.kvkpack";
    open_fails(&o);
    changed_pack(PACK_AT_GENERATOR, "0123 llvm 9\0", 12);
    changed_pack(PACK_AT_ABI, "\143\0\0\0", 4);
}

/* ---- cancelling, processes ---- */

static int stop(void *data, const struct kvk_progress *progress)
{
    (void)data, (void)progress;
    return 1;
}

static int stop_while_waiting(void *waiter, const struct kvk_progress *progress)
{
    return pthread_equal(pthread_self(), *(pthread_t *)waiter) && !progress->kind;
}

static void *prepare_store(void *ctx)
{
    struct kvk_model model = rt_model();
    const kvk_kernels *k;
    model.kinds = KVK_STORE;
    kvk_prepare(ctx, &model, &k, NULL);
    return NULL;
}

static void cancelling(void **state)
{
    struct kvk_options o = options_of("cuda:0");
    struct kvk_model model = rt_model();
    pthread_t self = pthread_self(), other;
    const kvk_kernels *k;
    kvk_context *ctx;
    kvk_error err = {0};

    (void)state;
    o.prepare_threads = 1;
    o.progress = stop;
    rt_generator.delay_ms = 50; /* or all are made before anybody is asked */
    prepare_fails(&o, &model);
    o.progress = stop_while_waiting;
    o.progress_data = &self;
    rt_generator.delay_ms = 700;
    model.kinds = KVK_STORE;
    assert_int_equal(kvk_open(&o, &ctx, &err), KVK_OK);
    assert_int_equal(pthread_create(&other, NULL, prepare_store, ctx), 0);
    while (!rt_generator.running)
        usleep(1000);
    kvk_status status = kvk_prepare(ctx, &model, &k, &err);
    pthread_join(other, NULL);
    kvk_close(ctx);
    met(status, &err);
}

/* The child's error comes through memory that both share. */
static void children(void **state)
{
    kvk_error *err =
        mmap(NULL, sizeof *err, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct kvk_model model = rt_model();
    const kvk_kernels *k;
    kvk_context *ctx = rt_open(NULL);

    (void)state;
    assert_ptr_not_equal(err, MAP_FAILED);
    pid_t child = fork();
    if (child == 0)
        _exit((int)kvk_prepare(ctx, &model, &k, err) == 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    kvk_close(ctx);
    met(err->status, err);
    munmap(err, sizeof *err);
}

/* ---- devices ---- */

static void cuda_devices(void **state)
{
    (void)state;
    device_fails("cuda:7");
    faults.missing = "dlopen";
    device_fails("cuda:0");
    faults.missing = "cuLaunchKernel";
    device_fails("cuda:0");
    faults.missing = NULL;
    cuda->major = 7;
    device_fails("cuda:0");
    cuda->fail_at = cuda->calls + 1;
    cuda->fail_code = 100;
    device_fails("cuda:0");
}

static void hip_devices(void **state)
{
    (void)state;
    faults.missing = "dlopen";
    device_fails("hip:0");
    faults.missing = "hipModuleLoadData";
    device_fails("hip:0");
    faults.missing = NULL;
    rt_topology_node(folder, 1,
                     "simd_count 416\nsimd_per_cu 4\ngfx_target_version 90010\n"
                     "location_id 768\ndomain 0\n");
    device_fails("hip:1");
    topology = "/nowhere";
    device_fails("hip:0");
    hip->devices = 0;
    device_fails("hip:0");
}

/* Nothing opens: no device of CUDA's or HIP's, and at the n-th request no memory for the host's. */
static void no_device_at_all(void **state)
{
    kvk_status status = KVK_OK;
    struct kvk_options o = options_of("auto");
    kvk_context *ctx;
    kvk_error err = {0};

    (void)state;
    cuda->devices = hip->devices = 0;
    for (int n = 1; status != KVK_E_DEVICE && n < 100; n++) {
        faults_arm(FAULT_MEMORY, n, 0);
        status = kvk_open(&o, &ctx, &err);
        faults_disarm();
        if (!status)
            kvk_close(ctx);
    }
    met(status, &err);
    const char *why = strstr(err.text, "cuda: ");
    assert_non_null(why);
    why += strlen("cuda: ");
    snprintf(err.text, sizeof err.text, "%.*s", (int)strcspn(why, ";"), why);
    met(KVK_E_DEVICE, &err);
}

/* From here on this process may not make memory executable, as under SELinux. */
static int forbid_code(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void host_devices(void **state)
{
    static const char manifest[] = "kernel x\nformat host\ntarget x86-64-v2\n";
    kvk_error *err =
        mmap(NULL, sizeof *err, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct object object = {.key = "",
                                  .manifest = manifest,
                                  .manifest_bytes = sizeof manifest - 1,
                                  .code = "\303",
                                  .code_bytes = 1};
    void *module;
    int status;

    (void)state;
    device_fails("host:7");
    assert_ptr_not_equal(err, MAP_FAILED);
    pid_t child = fork();
    if (child == 0)
        _exit(forbid_code() ? 77 : driver_host.load(NULL, &object, &module, err) == KVK_OK);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) != 77) { /* no seccomp here: the row stays unmet */
        met(err->status, err);
    }
    munmap(err, sizeof *err);
}

static void drivers_older_than_the_code(void **state)
{
    struct kvk_options o = options_of("cuda:0");
    const struct kvk_model model = rt_model();

    (void)state;
    cuda->version = 12040;
    cuda->refuse_cubin = 209;
    cuda->refuse_ptx = 222;
    prepare_fails(&o, &model);
    cuda->refuse_ptx = 218;
    prepare_fails(&o, &model);
}

/* ---- programs ---- */

static void models(void **state)
{
    struct kvk_options o = options_of("cuda:0");
    struct kvk_model model = rt_model();
    struct {
        struct kvk_model model;
        int later;
    } newer = {rt_model(), 1};

    (void)state;
    model.spec = "no_such_preset";
    prepare_fails(&o, &model);
    model = rt_model();
    model.size = 8;
    prepare_fails(&o, &model);
    newer.model.size = sizeof newer;
    prepare_fails(&o, &newer.model);
    model = rt_model();
    model.page_tokens = -1;
    prepare_fails(&o, &model);
}

static void calls(void **state)
{
    struct kvk_store_args store = KVK_INIT(struct kvk_store_args);
    struct kvk_decode_args decode = KVK_INIT(struct kvk_decode_args);
    struct kvk_copy_args copy = KVK_INIT(struct kvk_copy_args);
    struct kvk_model model = rt_model();
    const kvk_kernels *k, *one;
    kvk_error err = {0};
    kvk_context *ctx = rt_open(NULL);
    void *at = (void *)(uintptr_t)0x10000;

    (void)state;
    assert_int_equal(kvk_prepare(ctx, &model, &k, &err), KVK_OK);
    model.layout = "soa";
    model.kinds = KVK_STORE;
    assert_int_equal(kvk_prepare(ctx, &model, &one, &err), KVK_OK);
    store.pool = decode.pool = copy.from = copy.to = (struct kvk_pool){.data = at, .pages = 10};
    store.key.data = store.value.data = decode.query.data = decode.out.data = at;
    store.slots = decode.block_table = decode.lengths = copy.from_index = copy.to_index = at;
    store.rows = decode.sequences = decode.table_stride = copy.items = 1;
    decode.max_context = 1 << 20;
    met(kvk_decode(one, &decode, NULL, &err), &err);
    met(kvk_decode(k, &decode, NULL, &err), &err); /* no workspace */
    met(kvk_copy(k, one, &copy, NULL, &err), &err);
    store.pool.data = (char *)at + 1;
    met(kvk_store(k, &store, NULL, &err), &err);
    kvk_close(ctx);
}

static void objects(void **state)
{
    const struct gen_request request = rt_request("store");
    struct object parsed;
    kvk_error err = {0};
    size_t size;
    unsigned char *bytes = rt_object(&request, &size);

    (void)state;
    bytes[size - 1] ^= 1;
    met(object_parse(bytes, size, &parsed, &err), &err);
    bytes[8] ^= 64; /* the version comes before the sum */
    met(object_parse(bytes, size, &parsed, &err), &err);
    free(bytes);
}

/* Last: every row was met. */
static void every_message_was_met(void **state)
{
    (void)state;
    const struct page_row *row = page_unmet(&page);
    if (row)
        fail_msg("not met: %s", row->message);
}

static int read_table(void **state)
{
    (void)state;
    return page_read(&page, TEST_ROOT "/docs/embedding.md", "## Trouble", NULL) > 30 ? 0 : -1;
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(generators),
        TEST(packs),
        TEST(cancelling),
        TEST(children),
        TEST(cuda_devices),
        TEST(hip_devices),
        TEST(no_device_at_all),
        TEST(host_devices),
        TEST(drivers_older_than_the_code),
        TEST(models),
        TEST(calls),
        TEST(objects),
        TEST(every_message_was_met),
    };
    return cmocka_run_group_tests(tests, read_table, NULL);
}
