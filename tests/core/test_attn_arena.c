/* test_attn_arena.c - pieces are aligned, apart, inside the block, and come back. */
#include "core/attn.h"

#include <criterion/criterion.h>
#include <string.h>

static _Alignas(ATTN_ALIGN) unsigned char block[1024 + ATTN_ALIGN];

Test(attn_arena, aligned_and_apart)
{
    struct attn_arena arena = {.base = block, .size = 1024};
    unsigned char *a = attn_arena_take(&arena, 1), *b = attn_arena_take(&arena, 65);

    cr_assert_eq((uintptr_t)a % ATTN_ALIGN, 0);
    cr_assert_eq((uintptr_t)b % ATTN_ALIGN, 0);
    cr_assert_eq(b - a, ATTN_ALIGN);
    cr_assert_eq(arena.used, 3 * ATTN_ALIGN);
}

Test(attn_arena, exact_fit_then_no_room)
{
    struct attn_arena arena = {.base = block, .size = 1024};

    cr_assert_not_null(attn_arena_take(&arena, 1024));
    cr_assert_null(attn_arena_take(&arena, 1));
    cr_assert_eq(arena.used, 1024);
}

Test(attn_arena, refuses_more_than_there_is)
{
    struct attn_arena arena = {.base = block, .size = 1000};

    cr_assert_null(attn_arena_take(&arena, 961), "rounds up to 1024");
    cr_assert_null(attn_arena_take(&arena, SIZE_MAX));
    cr_assert_null(attn_arena_take(&arena, SIZE_MAX - 63));
    cr_assert_eq(arena.used, 0);
    cr_assert_not_null(attn_arena_take(&arena, 960));
}

Test(attn_arena, a_crooked_base_is_straightened_once)
{
    struct attn_arena arena = {.base = block + 8, .size = 1024};
    unsigned char *a = attn_arena_take(&arena, 64), *b = attn_arena_take(&arena, 64);

    cr_assert_eq((uintptr_t)a % ATTN_ALIGN, 0);
    cr_assert_eq(b - a, 64);
    cr_assert_leq(arena.used, 64 + 128);
    cr_assert_null(attn_arena_take(&arena, 1024));
}

Test(attn_arena, release_gives_back_and_peak_stays)
{
    struct attn_arena arena = {.base = block, .size = 1024};

    attn_arena_take(&arena, 64);

    const size_t mark = attn_arena_mark(&arena);
    void *first = attn_arena_take(&arena, 640);

    attn_arena_release(&arena, mark);
    cr_assert_eq(attn_arena_take(&arena, 64), first);
    cr_assert_eq(arena.used, 128);
    cr_assert_eq(arena.peak, 704);
}

Test(attn_arena, empty_arena_has_nothing)
{
    struct attn_arena arena = {0};

    cr_assert_null(attn_arena_take(&arena, 1));
}
