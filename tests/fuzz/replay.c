/* SPDX-License-Identifier: Apache-2.0 */
/*
** replay.c - a fuzz target without a fuzzer: every seed of its corpus, and of each some mutations by
** a fixed generator (bits flipped, bytes set, cut, doubled). An input that ends the process is
** named first, on standard output.
*/
#include "fuzz.h"

#include <dirent.h>
#include <string.h>
#include <sys/mman.h>

enum { SEED_MOST_BYTES = 1 << 20, MUTATIONS = 60, NAME_CAP = 512, PATH_CAP = 1024 };

static uint64_t random_state = 20240607;

static uint64_t random_below(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return n ? random_state % n : 0;
}

static size_t mutate(uint8_t *bytes, size_t size)
{
    static const uint8_t edges[] = {0, 1, 0x7F, 0x80, 0xFF, '\n', ' ', '0', '-'};
    for (uint64_t steps = 1 + random_below(4); steps && size; steps--) {
        size_t at = random_below(size), half = size / 2;
        switch (random_below(5)) {
        case 0: bytes[at] ^= (uint8_t)(1u << random_below(8)); break;
        case 1: bytes[at] = edges[random_below(sizeof edges)]; break;
        case 2: size = at; break;
        case 3:
            memmove(bytes + at, bytes + random_below(size - at) + at, random_below(size - at) / 2);
            break;
        default: memcpy(bytes + half, bytes, size - half < half ? size - half : half);
        }
    }
    return size;
}

/* A copy that ends at an inaccessible page: a read past its end faults, also inside libc, where no sanitizer looks. */
static void once(const uint8_t *bytes, size_t size)
{
    static uint8_t *room;
    if (!room) {
        room = mmap(NULL, 2 * SEED_MOST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                    -1, 0);
        FUZZ_CHECK(room != MAP_FAILED);
        FUZZ_CHECK(mprotect(room + SEED_MOST_BYTES, SEED_MOST_BYTES, PROT_NONE) == 0);
    }
    uint8_t *copy = room + SEED_MOST_BYTES - size;
    memcpy(copy, bytes, size);
    LLVMFuzzerTestOneInput(copy, size);
}

static int replay(const char *folder, const char *file, int number)
{
    static uint8_t seed[SEED_MOST_BYTES], bytes[SEED_MOST_BYTES];
    char path[PATH_CAP];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *in = fopen(path, "rb");
    if (!in)
        return printf("not ok %d - %s/%s cannot be read\n", number, fuzz_name, file), 0;
    size_t size = fread(seed, 1, sizeof seed, in);
    fclose(in);
    printf("# %s/%s\n", fuzz_name, file);
    fflush(stdout);
    once(seed, size);
    for (int i = 0; i < MUTATIONS; i++) {
        memcpy(bytes, seed, size);
        once(bytes, mutate(bytes, size));
    }
    return printf("ok %d - %s/%s and %d mutations\n", number, fuzz_name, file, MUTATIONS), 1;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_seed(const struct dirent *d) { return d->d_name[0] != '.'; }

int main(void)
{
    char folder[NAME_CAP];
    struct dirent **seeds;
    snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus/%s", TEST_ROOT, fuzz_name);
    int n = scandir(folder, &seeds, is_seed, by_name), good = 0;
    if (n <= 0)
        return printf("not ok 1 - no seeds in %s\n", folder), 1;
    once((const uint8_t *)folder, 0);
    for (int i = 0; i < n; i++) {
        good += replay(folder, seeds[i]->d_name, i + 1);
        free(seeds[i]);
    }
    free(seeds);
    return good != n;
}
