/*
 * test_attn_kernel_width.c - the inner loops of every vector width: the same bits, where
 * they fuse alike.
 * Not here: whether the numbers are right (test_attn_kernel.c, test_attn_kernel_exp.c).
 * Start reading at every_width_gives_the_same_bits.
 */
#include "core/attn_core.h"
#include "make_row.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* Everything that a kernel computes of one row, in one place to be compared. */
struct results {
    double exp[ROW_KEYS], tanh[ROW_KEYS], scaled[ROW_KEYS], softmax[ROW_KEYS],
        additive[ROW_KEYS / 5], dot, lse, entropy;
};

static void all_of(const struct attn_kernel *kernel, const struct row *r, size_t n,
                   struct results *out)
{
    double s[ROW_KEYS], m[ROW_KEYS];

    memset(out, 0, sizeof *out);
    kernel->from_double(ROW_KEYS, r->s, s);
    kernel->from_double(ROW_KEYS, r->m, m);
    kernel->exp(n, s, out->exp);
    kernel->tanh(n, s, out->tanh);
    kernel->scale_cap(n, s, 0.3, 2, out->scaled);
    out->lse = kernel->softmax_row(n, s, m, r->allow, NULL, out->softmax).lse;
    out->dot = kernel->dot(n, s, m);
    kernel->additive_row(n / 5, 5, m, s, m, out->additive);
    if (kernel->entropy != NULL)
        cr_assert(kernel->entropy(n, out->softmax, &out->entropy));
}

/* Sums of up to ROW_KEYS terms that differ in the last bit of exp or tanh; dot has none.
 */
static bool nearly_same(enum attn_dtype dtype, const struct results *a,
                        const struct results *b)
{
    const double near = dtype == ATTN_F64 ? 1e-14 : 1e-5;
    const double *x = a->exp, *y = b->exp;

    if (a->dot != b->dot)
        return false;
    for (size_t n = 0; n < sizeof *a / sizeof *x; n++)
        if (!(x[n] == y[n] || fabs(x[n] - y[n]) <= near * fmax(1, fabs(x[n]))))
            return false;
    return true;
}

Test(attn_kernel_width, every_width_gives_the_same_bits)
{
    struct made random = {.state = 12};
    size_t compared = 0;

    for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++)
        for (size_t n = 1; n <= ROW_KEYS; n++) {
            const struct row r = make_row(&random, 3);
            struct results best, other;

            all_of(attn_kernel_of((enum attn_dtype)dtype), &r, n, &best);
            for (size_t w = 0; w < attn_kernel_widths(); w++) {
                const struct attn_kernel *kernel =
                    attn_kernel_width((enum attn_dtype)dtype, w);

                if (!kernel)
                    continue;
                all_of(kernel, &r, n, &other);
                if (kernel->fused == attn_kernel_of((enum attn_dtype)dtype)->fused)
                    cr_assert_eq(memcmp(&best, &other, sizeof best), 0, "width %zu n %zu",
                                 w, n);
                else
                    cr_assert(nearly_same((enum attn_dtype)dtype, &best, &other),
                              "width %zu n %zu", w, n);
                compared++;
            }
        }
    cr_assert_gt(compared, 0);
}
