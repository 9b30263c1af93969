/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_switch.h - switching between fibers of one OS thread. Assembly on x86-64 and aarch64 (callee-saved registers
** only, about 10 ns), ucontext elsewhere (two system calls a switch).
**
** AddressSanitizer and ThreadSanitizer are told about every switch when the file is built with them.
*/
#ifndef KVKILN_HOST_SWITCH_H
#define KVKILN_HOST_SWITCH_H

#include <stddef.h>

#if !defined(KVK_HOST_UCONTEXT) && (defined(__x86_64__) || defined(__aarch64__)) && defined(__ELF__)
#define HOST_SWITCH_ASM 1
#else
#define HOST_SWITCH_ASM 0
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define HOST_SWITCH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HOST_SWITCH_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define HOST_SWITCH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HOST_SWITCH_TSAN 1
#endif
#endif

/* A suspended flow of control. The one that an OS thread starts with needs no making: zero it. */
struct host_context {
#if HOST_SWITCH_ASM
    void *sp;
#else
    ucontext_t uc;
    void (*run)(void *);
    void *arg;
#endif
#if defined(HOST_SWITCH_ASAN)
    const void *stack_low; /* of the flow's own stack; learnt at the first switch away for an OS thread's own */
    size_t stack_bytes;
    void *fake_stack;
#endif
#if defined(HOST_SWITCH_TSAN)
    void *tsan_fiber;
#endif
};

/*
** Makes a context that will call run(arg) on its own stack when first switched to. `run` must never return. The context
** was zeroed or made before.
*/
void host_context_make(struct host_context *context, void *stack_low, size_t stack_bytes, void (*run)(void *), void *arg);

/* First thing in `run`. `origin` is the OS thread's own context, from which the first fiber is entered. */
void host_context_entered(struct host_context *origin);

/* Releases what sanitizers hold for a context that was made. */
void host_context_drop(struct host_context *context);

#if HOST_SWITCH_ASM && !defined(HOST_SWITCH_ASAN) && !defined(HOST_SWITCH_TSAN)
void host_switch_stack(void **save, void *to) __attribute__((visibility("hidden")));

static inline void host_context_switch(struct host_context *from, struct host_context *to)
{
    host_switch_stack(&from->sp, to->sp);
}

static inline void host_context_finish(struct host_context *from, struct host_context *to)
{
    host_switch_stack(&from->sp, to->sp);
}
#else
void host_context_switch(struct host_context *from, struct host_context *to);
/* The same for a context that will not be switched to again. */
void host_context_finish(struct host_context *from, struct host_context *to);
#endif

#endif
