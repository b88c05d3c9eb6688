/* test_api_span.c - shapes of lifted arrays: rank and lengths, or the first odd place. */
#include "api/api_private.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct api_limits LIMITS = {.memory_max_bytes = 1 << 20};

static struct api_span span_of(const char *text)
{
    struct api_ctx *ctx = api_ctx_new(&LIMITS);
    struct api_err err = {0};
    struct api_span span;
    size_t count;

    cr_assert(api_lift(ctx, text, strlen(text), &count, &err) && count == 1, "%s: %s",
              text, err.detail);
    span = ctx->span[0];
    api_ctx_free(ctx);
    return span;
}

Test(api_span, regular_arrays_have_rank_and_lengths)
{
    static const struct {
        const char *text;
        unsigned rank;
        size_t dim[5], leaves;
    } ROWS[] = {
        {"[1]", 1, {1}, 1},
        {"[]", 1, {0}, 0},
        {"[[]]", 2, {1, 0}, 0},
        {"[[],[]]", 2, {2, 0}, 0},
        {"[[1,2,3],[4,5,6]]", 2, {2, 3}, 6},
        {"[[[1],[2]],[[3],[4]],[[5],[6]]]", 3, {3, 2, 1}, 6},
        {"[[[[[true]]]]]", 5, {1, 1, 1, 1, 1}, 1},
    };

    for (size_t n = 0; n < API_COUNT(ROWS); n++) {
        const struct api_span span = span_of(ROWS[n].text);

        cr_expect(span.regular && span.rank == ROWS[n].rank, "%s: rank %u", ROWS[n].text,
                  span.rank);
        cr_expect(memcmp(span.dim, ROWS[n].dim, sizeof span.dim) == 0, "%s",
                  ROWS[n].text);
        cr_expect(span.leaves == ROWS[n].leaves, "%s", ROWS[n].text);
    }
}

Test(api_span, irregular_arrays_name_the_first_odd_place)
{
    static const struct {
        const char *text;
        enum api_odd odd;
        unsigned depth;
        size_t at[4], want, got;
    } ROWS[] = {
        {"[[1,2],[3]]", API_ODD_LENGTH, 1, {1}, 2, 1},
        {"[[[1],[2]],[[3]]]", API_ODD_LENGTH, 1, {1}, 2, 1},
        {"[[[1],[2,3]]]", API_ODD_LENGTH, 2, {0, 1}, 1, 2},
        {"[[],[1]]", API_ODD_LENGTH, 1, {1}, 0, 1},
        {"[[1],2]", API_ODD_LEAF, 1, {1}, 2, 1},
        {"[[],2]", API_ODD_LEAF, 1, {1}, 2, 1},
        {"[1,[2]]", API_ODD_ARRAY, 1, {1}, 1, 2},
        {"[[1],[[2]]]", API_ODD_ARRAY, 2, {1, 0}, 2, 3},
        {"[[[[[[1]]]]]]", API_ODD_DEEP, 5, {0, 0, 0, 0}, 5, 6},
        {"[[1,2],[3],[4,[5]]]", API_ODD_LENGTH, 1, {1}, 2, 1},
        {"[[-0.123456, -0.123456, -0.123456, -0.123456, -0.123456, -0.123456, 7], [8, "
         "9]]",
         API_ODD_LENGTH,
         1,
         {1},
         7,
         2},
        {"[-0.123456, -0.123456, -0.123456, -0.123456, -0.123456, -0.123456, 7, [8]]",
         API_ODD_ARRAY,
         1,
         {7},
         1,
         2},
        {"[[8], -0.123456, -0.123456, -0.123456, -0.123456, -0.123456, -0.123456, 7]",
         API_ODD_LEAF,
         1,
         {1},
         2,
         1},
    };

    for (size_t n = 0; n < API_COUNT(ROWS); n++) {
        const struct api_span span = span_of(ROWS[n].text);
        const unsigned shown = ROWS[n].depth < 4 ? ROWS[n].depth : 4;

        cr_expect(!span.regular && span.odd == ROWS[n].odd, "%s: %d", ROWS[n].text,
                  (int)span.odd);
        cr_expect(span.odd_depth == ROWS[n].depth, "%s: %u", ROWS[n].text,
                  span.odd_depth);
        cr_expect(memcmp(span.odd_at, ROWS[n].at, shown * sizeof *span.odd_at) == 0, "%s",
                  ROWS[n].text);
        cr_expect(span.odd_want == ROWS[n].want && span.odd_got == ROWS[n].got,
                  "%s: %zu, %zu", ROWS[n].text, span.odd_want, span.odd_got);
    }
}

Test(api_span, knows_what_kinds_of_values_there_are)
{
    const struct api_span span = span_of("[1,\"NaN\",null]");

    cr_expect(span.has_numbers && span.has_strings && span.has_nulls &&
              !span.has_booleans);
    cr_expect(span_of("[false]").has_booleans && !span_of("[false]").has_numbers);
}
