/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_cpu.c - see host_cpu.h. The levels are those of the x86-64 psABI, read by cpuid; a level
** counts only if the operating system saves its registers (xgetbv).
*/
#include "host_cpu.h"

#include "error.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>

static unsigned long long saved_state(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (unsigned long long)high << 32 | low;
}

static int has(unsigned bits, unsigned wanted) { return (bits & wanted) == wanted; }

int host_cpu_level(void)
{
    unsigned a, b, c, d, b7, c7, d7, ax, bx, cx, dx;
    const unsigned sse =
        bit_SSE3 | bit_SSSE3 | bit_CMPXCHG16B | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT;
    const unsigned avx = bit_FMA | bit_MOVBE | bit_OSXSAVE | bit_AVX | bit_F16C;
    const unsigned avx512 = bit_AVX512F | bit_AVX512DQ | bit_AVX512CD | bit_AVX512BW | bit_AVX512VL;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !__get_cpuid(0x80000001, &ax, &bx, &cx, &dx) ||
        !has(c, sse) || !has(cx, bit_LAHF_LM))
        return 1;
    if (!has(c, avx) || !has(cx, bit_LZCNT) || !__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) ||
        !has(b7, bit_AVX2 | bit_BMI | bit_BMI2) || (saved_state() & 6) != 6)
        return 2;
    return has(b7, avx512) && (saved_state() & 0xe6) == 0xe6 ? 4 : 3;
}

void host_cpu_name(char *name, size_t cap)
{
    unsigned brand[12] = {0};
    char text[sizeof brand + 1];
    for (unsigned i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002 + i, brand + 4 * i, brand + 4 * i + 1, brand + 4 * i + 2,
                         brand + 4 * i + 3))
            snprintf((char *)brand, sizeof brand, "x86-64 processor");
    memcpy(text, brand, sizeof brand);
    text[sizeof brand] = 0;
    snprintf(name, cap, "%s", text + strspn(text, " "));
    for (size_t n = strlen(name); n && name[n - 1] == ' ';)
        name[--n] = 0;
}

const char *host_cpu_target(void)
{
    static const char *const names[] = {"x86-64", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
    return names[host_cpu_level()];
}
#else
int host_cpu_level(void) { return 0; }

void host_cpu_name(char *name, size_t cap)
{
    snprintf(name, cap, "%s processor", host_cpu_target());
}

const char *host_cpu_target(void)
{
#if defined(__aarch64__)
    return "aarch64";
#else
    return "unknown";
#endif
}
#endif

int host_cpu_target_level(const char *target)
{
    if (strncmp(target, "x86-64-v", 8) || target[8] < '2' || target[8] > '4' || target[9])
        return 0;
    return target[8] - '0';
}

kvk_status host_cpu_check(const char *target, int level, const char *here, kvk_error *err)
{
    const int wanted = host_cpu_target_level(target);
    if (!wanted)
        return ERR(err, KVK_E_OBJECT, "target %s: x86-64-v2, x86-64-v3 or x86-64-v4 accepted",
                   target);
    if (!level)
        return ERR(err, KVK_E_UNSUPPORTED,
                   "target %s: this host is %s, for which there is no target yet", target, here);
    if (wanted > level)
        return ERR(err, KVK_E_UNSUPPORTED, "target %s: this processor runs %s", target, here);
    return KVK_OK;
}

unsigned host_cpu_count(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) ? (int)sysconf(_SC_NPROCESSORS_ONLN)
                                                   : CPU_COUNT(&set);
    return n < 1 ? 1 : (unsigned)n;
}
