/*
 * attn_arena.c - hands out aligned pieces of one block of memory that the caller lends.
 * Not here: getting or freeing that block (server/), deciding how much is needed
 * (attn_plan.c). Start reading at attn_arena_take.
 */
#include "core/attn.h"

#include <assert.h>

/* Addresses are aligned, not offsets: a base that is not ATTN_ALIGN-aligned costs up to
   ATTN_ALIGN - 1 bytes once, since every size is rounded up. */
void *attn_arena_take(struct attn_arena *arena, size_t bytes)
{
    assert(arena->used <= arena->size);

    const size_t room = arena->size - arena->used;
    const size_t past = (size_t)((uintptr_t)(arena->base + arena->used) % ATTN_ALIGN);
    const size_t skip = past == 0 ? 0 : ATTN_ALIGN - past;

    if (arena->base == NULL || skip > room ||
        bytes > (room - skip) / ATTN_ALIGN * ATTN_ALIGN)
        return NULL;

    void *p = arena->base + arena->used + skip;

    arena->used += skip + (bytes + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;
    if (arena->used > arena->peak)
        arena->peak = arena->used;
    return p;
}

size_t attn_arena_mark(const struct attn_arena *arena)
{
    return arena->used;
}

void attn_arena_release(struct attn_arena *arena, size_t mark)
{
    assert(mark <= arena->used);
    arena->used = mark;
}
