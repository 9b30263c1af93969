/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_switch.c - see host_switch.h.
**
** host_switch_stack pushes the callee-saved registers, swaps stack pointers and pops. It returns
** with `ret`: fibers of a warp are all suspended at the same call, so the return address that the
** processor predicts is the right one. A new stack looks as if it had been suspended just before
** host_switch_start, with `run` and `arg` in two of the registers that the switch restores.
*/
#include "host_switch.h"

#include <stdint.h>
#include <string.h>

#if defined(HOST_SWITCH_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(HOST_SWITCH_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

#if HOST_SWITCH_ASM
void host_switch_stack(void **save, void *to) __attribute__((visibility("hidden")));
void host_switch_start(void) __attribute__((visibility("hidden")));
#endif

#if HOST_SWITCH_ASM && defined(__x86_64__)
enum { FRAME_WORDS = 7, FRAME_ARG = 3, FRAME_RUN = 2, FRAME_RETURN = 6 };

__asm__(".text\n"
        ".p2align 4\n"
        ".globl host_switch_stack\n"
        ".hidden host_switch_stack\n"
        ".type host_switch_stack,@function\n"
        "host_switch_stack:\n"
        "  pushq %rbp\n"
        "  pushq %rbx\n"
        "  pushq %r12\n"
        "  pushq %r13\n"
        "  pushq %r14\n"
        "  pushq %r15\n"
        "  movq %rsp,(%rdi)\n"
        "  movq %rsi,%rsp\n"
        "  popq %r15\n"
        "  popq %r14\n"
        "  popq %r13\n"
        "  popq %r12\n"
        "  popq %rbx\n"
        "  popq %rbp\n"
        "  ret\n"
        ".size host_switch_stack,.-host_switch_stack\n"
        ".globl host_switch_start\n"
        ".hidden host_switch_start\n"
        ".type host_switch_start,@function\n"
        "host_switch_start:\n"
        "  movq %r12,%rdi\n"
        "  callq *%r13\n"
        "  ud2\n"
        ".size host_switch_start,.-host_switch_start\n");
#elif HOST_SWITCH_ASM && defined(__aarch64__)
enum { FRAME_WORDS = 20, FRAME_ARG = 0, FRAME_RUN = 1, FRAME_RETURN = 11 };

__asm__(".text\n"
        ".p2align 4\n"
        ".globl host_switch_stack\n"
        ".hidden host_switch_stack\n"
        ".type host_switch_stack,%function\n"
        "host_switch_stack:\n"
        "  sub sp,sp,#160\n"
        "  stp x19,x20,[sp,#0]\n"
        "  stp x21,x22,[sp,#16]\n"
        "  stp x23,x24,[sp,#32]\n"
        "  stp x25,x26,[sp,#48]\n"
        "  stp x27,x28,[sp,#64]\n"
        "  stp x29,x30,[sp,#80]\n"
        "  stp d8,d9,[sp,#96]\n"
        "  stp d10,d11,[sp,#112]\n"
        "  stp d12,d13,[sp,#128]\n"
        "  stp d14,d15,[sp,#144]\n"
        "  mov x9,sp\n"
        "  str x9,[x0]\n"
        "  mov sp,x1\n"
        "  ldp x19,x20,[sp,#0]\n"
        "  ldp x21,x22,[sp,#16]\n"
        "  ldp x23,x24,[sp,#32]\n"
        "  ldp x25,x26,[sp,#48]\n"
        "  ldp x27,x28,[sp,#64]\n"
        "  ldp x29,x30,[sp,#80]\n"
        "  ldp d8,d9,[sp,#96]\n"
        "  ldp d10,d11,[sp,#112]\n"
        "  ldp d12,d13,[sp,#128]\n"
        "  ldp d14,d15,[sp,#144]\n"
        "  add sp,sp,#160\n"
        "  ret\n"
        ".size host_switch_stack,.-host_switch_stack\n"
        ".globl host_switch_start\n"
        ".hidden host_switch_start\n"
        ".type host_switch_start,%function\n"
        "host_switch_start:\n"
        "  mov x0,x19\n"
        "  blr x20\n"
        "  brk #1\n"
        ".size host_switch_start,.-host_switch_start\n");
#endif

#if HOST_SWITCH_ASM
static void make_stack(struct host_context *context, void *low, size_t bytes, void (*run)(void *),
                       void *arg)
{
    uintptr_t top = ((uintptr_t)low + bytes) & ~(uintptr_t)15;
    uintptr_t *frame = (uintptr_t *)top - FRAME_WORDS;
    memset(frame, 0, FRAME_WORDS * sizeof *frame);
    frame[FRAME_ARG] = (uintptr_t)arg;
    frame[FRAME_RUN] = (uintptr_t)run;
    frame[FRAME_RETURN] = (uintptr_t)host_switch_start;
    context->sp = frame;
}

#else
/* makecontext passes ints: the context's address travels in two halves. */
static void start(unsigned high, unsigned low)
{
    struct host_context *context = (void *)(uintptr_t)((uint64_t)high << 32 | low);
    context->run(context->arg);
}

static void make_stack(struct host_context *context, void *low, size_t bytes, void (*run)(void *),
                       void *arg)
{
    uint64_t self = (uintptr_t)context;
    getcontext(&context->uc);
    context->uc.uc_stack.ss_sp = low;
    context->uc.uc_stack.ss_size = bytes;
    context->uc.uc_link = NULL;
    context->run = run;
    context->arg = arg;
    makecontext(&context->uc, (void (*)(void))start, 2, (unsigned)(self >> 32), (unsigned)self);
}

#endif

void host_context_make(struct host_context *context, void *stack_low, size_t stack_bytes,
                       void (*run)(void *), void *arg)
{
#if defined(HOST_SWITCH_ASAN)
    /* What an earlier fiber that was abandoned in the middle of a call left marked is not this
    ** fiber's. */
    ASAN_UNPOISON_MEMORY_REGION(stack_low, stack_bytes);
    context->stack_low = stack_low;
    context->stack_bytes = stack_bytes;
    context->fake_stack = NULL;
#endif
#if defined(HOST_SWITCH_TSAN)
    if (!context->tsan_fiber) /* kept from CTA to CTA: making one is slow */
        context->tsan_fiber = __tsan_create_fiber(0);
#endif
    make_stack(context, stack_low, stack_bytes, run, arg);
}

void host_context_entered(struct host_context *origin)
{
#if defined(HOST_SWITCH_ASAN)
    if (!origin->stack_low)
        __sanitizer_finish_switch_fiber(NULL, &origin->stack_low, &origin->stack_bytes);
    else
        __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#else
    (void)origin;
#endif
}

void host_context_drop(struct host_context *context)
{
#if defined(HOST_SWITCH_TSAN)
    if (context->tsan_fiber)
        __tsan_destroy_fiber(context->tsan_fiber);
    context->tsan_fiber = NULL;
#else
    (void)context;
#endif
}

#if !HOST_SWITCH_ASM || defined(HOST_SWITCH_ASAN) || defined(HOST_SWITCH_TSAN)
static void switch_to(struct host_context *from, struct host_context *to, void **fake_stack)
{
#if defined(HOST_SWITCH_TSAN)
    if (!from->tsan_fiber)
        from->tsan_fiber = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to->tsan_fiber, 0);
#endif
#if defined(HOST_SWITCH_ASAN)
    __sanitizer_start_switch_fiber(fake_stack, to->stack_low, to->stack_bytes);
#else
    (void)fake_stack;
#endif
#if HOST_SWITCH_ASM
    host_switch_stack(&from->sp, to->sp);
#else
    swapcontext(&from->uc, &to->uc);
#endif
#if defined(HOST_SWITCH_ASAN)
    __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}

void host_context_switch(struct host_context *from, struct host_context *to)
{
#if defined(HOST_SWITCH_ASAN)
    switch_to(from, to, &from->fake_stack);
#else
    switch_to(from, to, NULL);
#endif
}

void host_context_finish(struct host_context *from, struct host_context *to)
{
    switch_to(from, to, NULL);
}
#endif
