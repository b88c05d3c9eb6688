/*
 * test_attn_fault_way.c - faults that come out in other ways than the catalogue's own
 * stages: rows that a wrong mask leaves without a key, sinks along a wrong axis, biases
 * that come as late as their mask.  The wrong weights are made here, by plain loops.
 * Not here: faults made by their own stages (test_attn_fault.c, test_attn_diagnose.c).
 * Start reading at the tests, at the end.
 */
#include "make_candidate.h"

#include "core/attn_fault.h"

#include <criterion/criterion.h>
#include <math.h>

enum { SEEDS = 4, B = 2, HEADS = 2, T = 5, WIDTH = 3, MODEL = 7 };

static const struct attn_dims D = MAKE_DIMS(T, T, MODEL, .B = B, .d_k = WIDTH,
                                            .d_v = WIDTH + 1, .h = HEADS, .h_kv = HEADS);

struct layer { /* a causal layer, and weights to be made wrong */
    struct made m;
    struct ran r;
};

static void layer_make(struct layer *l, uint64_t seed)
{
    make_plain(&l->m, seed, ATTN_F64, ATTN_SELF, D);
    make_mask(&l->m, "causal");
    make_prepare(&l->m);
}

static void layer_run(struct layer *l)
{
    make_run_all(&l->m.p, ATTN_PATH_DENSE, NULL, &l->r);
    cr_assert(l->r.ok);
}

static void layer_free(struct layer *l)
{
    make_run_free(&l->r);
    make_free(&l->m);
}

static double *entry(struct layer *l, enum attn_object o, size_t b, size_t h, size_t i,
                     size_t j)
{
    const struct attn_tensor *t = &l->r.trace.t[o];

    return (double *)t->p + ((b * t->dim[1] + h) * t->dim[2] + i) * t->dim[3] + j;
}

/* H = A·V, heads side by side, and Y = H·W_O. */
static void finish(struct layer *l)
{
    const size_t d_v = WIDTH + 1;
    const double *W = l->m.p.in[ATTN_IN_W_O].p;

    for (size_t b = 0; b < B; b++)
        for (size_t i = 0; i < T; i++) {
            double *H = (double *)l->r.trace.t[ATTN_H].p + (b * T + i) * HEADS * d_v;
            double *Y = (double *)l->r.trace.t[ATTN_Y].p + (b * T + i) * MODEL;

            for (size_t k = 0; k < HEADS * d_v; k++) {
                H[k] = 0.0;
                for (size_t j = 0; j < T; j++)
                    H[k] += *entry(l, ATTN_A, b, k / d_v, i, j) *
                            *entry(l, ATTN_V, b, k / d_v, j, k % d_v);
            }
            for (size_t c = 0; c < MODEL; c++) {
                Y[c] = 0.0;
                for (size_t k = 0; k < HEADS * d_v; k++)
                    Y[c] += H[k] * W[k * MODEL + c];
            }
        }
}

/* Best cause with most of what there is, and with what a layer usually shows. */
static size_t missed(const char *fault, struct layer *l, uint32_t without)
{
    static const uint32_t SHOWN[] = {SEEN_ALL, ATTN_BIT(ATTN_A) | ATTN_BIT(ATTN_Y),
                                     ATTN_BIT(ATTN_H) | ATTN_BIT(ATTN_Y),
                                     ATTN_BIT(ATTN_Y)};
    const struct attn_fault_row *row = attn_fault_find(fault);
    size_t count = 0;

    for (size_t n = 0; n < ATTN_COUNT(SHOWN); n++) {
        const struct attn_candidate c = candidate_of(&l->r.trace, SHOWN[n] & ~without);
        const struct attn_report report = diagnose(&l->m.p, &c, NULL);

        if (report.diagnoses > 0 && report.diagnosis[0].fault == row)
            continue;
        print(fault, l->m.seed, &report);
        count++;
    }
    return count;
}

/* ---- rows that a wrong mask leaves without a key ---- */

/* What a layer makes of the scores of a row of which every key is forbidden. */
typedef double logit_fn(double s);

static double filled(double s)
{
    (void)s;
    return -1e9;
}

static double added_nine(double s)
{
    return s + -1e9;
}

static double added_four(double s)
{
    return s + -1e4;
}

static double added_float(double s)
{
    return (double)((float)s + -1e4f);
}

static double infinite(double s)
{
    (void)s;
    return -INFINITY;
}

/* tril(k=-1): a query may not read its own position, so the first reads none. */
static void strict_triangle(struct layer *l, logit_fn *logit)
{
    for (size_t n = 0; n < B * HEADS * T; n++) {
        const size_t b = n / (HEADS * T), h = n / T % HEADS, i = n % T;
        double top = -INFINITY, sum = 0.0;

        for (size_t j = 0; j < T; j++) {
            const double s = *entry(l, ATTN_S, b, h, i, j);

            *entry(l, ATTN_A, b, h, i, j) = j < i ? s : logit(s);
            top = fmax(top, *entry(l, ATTN_A, b, h, i, j));
        }
        for (size_t j = 0; j < T; j++)
            sum += exp(*entry(l, ATTN_A, b, h, i, j) - top);
        for (size_t j = 0; j < T; j++)
            *entry(l, ATTN_A, b, h, i, j) =
                exp(*entry(l, ATTN_A, b, h, i, j) - top) / sum;
    }
}

Test(attn_fault_way, emptied_rows_may_be_anything)
{
    static logit_fn *const LOGITS[] = {filled, added_nine, added_four, added_float,
                                       infinite};
    size_t count = 0;

    for (size_t n = 0; n < ATTN_COUNT(LOGITS); n++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct layer l;

            layer_make(&l, seed);
            layer_run(&l);
            strict_triangle(&l, LOGITS[n]);
            finish(&l);
            /* The mask that is shown is the right one, or none is. */
            count += missed("causal_own_position_forbidden", &l,
                            ATTN_BIT(ATTN_M) | ATTN_BIT(ATTN_ALLOWED));
            layer_free(&l);
        }
    cr_assert_eq(count, 0);
}

/* The same rows where that triangle is what was asked: now they are the fault. */
Test(attn_fault_way, an_empty_row_read_by_its_scores)
{
    static logit_fn *const LOGITS[] = {added_nine, added_four, added_float};
    static const uint8_t TRIANGLE[T][T] = {{0}, {1}, {1, 1}, {1, 1, 1}, {1, 1, 1, 1}};
    size_t count = 0;

    for (size_t n = 0; n < ATTN_COUNT(LOGITS); n++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct layer l;

            layer_make(&l, seed);
            make_mask(&l.m, "allowed")->arg[0] = (struct attn_arg){
                .given = true,
                .table = {.elem = ATTN_ELEM_U8, .p = TRIANGLE, .stride_i = T}};
            make_prepare(&l.m);
            layer_run(&l);
            strict_triangle(&l, LOGITS[n]);
            finish(&l);
            count += missed("masked_row_by_score", &l, 0);
            layer_free(&l);
        }
    cr_assert_eq(count, 0);
}

/* ---- a mask that comes too late ---- */

/* Weights of S alone, later keys then set to 0: a bias is lost with the mask. */
static void masked_late(struct layer *l)
{
    for (size_t n = 0; n < B * HEADS * T; n++) {
        const size_t b = n / (HEADS * T), h = n / T % HEADS, i = n % T;
        double sum = 0.0;

        for (size_t j = 0; j < T; j++)
            sum += exp(*entry(l, ATTN_S, b, h, i, j));
        for (size_t j = 0; j < T; j++)
            *entry(l, ATTN_A, b, h, i, j) =
                j <= i ? exp(*entry(l, ATTN_S, b, h, i, j)) / sum : 0.0;
    }
}

Test(attn_fault_way, a_bias_as_late_as_its_mask)
{
    size_t count = 0;

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct layer l;
        double bias[T][T];

        layer_make(&l, seed);
        for (size_t n = 0; n < T * T; n++)
            bias[n / T][n % T] = make_normal(&l.m);
        l.m.p.additive =
            (struct attn_table){.elem = ATTN_ELEM_F64, .p = bias, .stride_i = T};
        make_prepare(&l.m);
        layer_run(&l);
        masked_late(&l);
        finish(&l);
        count += missed("mask_after_softmax", &l, 0);
        layer_free(&l);
    }
    cr_assert_eq(count, 0);
}

/* ---- another axis ---- */

/* Columns are normalised; the sink of the head may be in each denominator. */
static void down_columns(struct layer *l, const double *sink)
{
    for (size_t n = 0; n < B * HEADS * T; n++) {
        const size_t b = n / (HEADS * T), h = n / T % HEADS, j = n % T;
        double sum = sink ? exp(sink[h]) : 0.0;

        for (size_t i = j; i < T; i++)
            sum += exp(*entry(l, ATTN_S, b, h, i, j));
        for (size_t i = 0; i < T; i++)
            *entry(l, ATTN_A, b, h, i, j) =
                i < j ? 0.0 : exp(*entry(l, ATTN_S, b, h, i, j)) / sum;
    }
}

Test(attn_fault_way, columns_with_and_without_a_sink)
{
    size_t count = 0;

    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        for (int with = 0; with < 2; with++) {
            struct layer l;
            double sink[HEADS];

            layer_make(&l, seed);
            for (size_t h = 0; h < HEADS; h++)
                sink[h] = make_normal(&l.m);
            l.m.p.in[ATTN_IN_SINK] = (struct attn_tensor){
                .dtype = ATTN_F64, .rank = 1, .dim = {HEADS}, .p = sink};
            make_prepare(&l.m);
            layer_run(&l);
            down_columns(&l, with ? sink : NULL);
            finish(&l);
            count += missed("softmax_over_queries", &l, 0);
            layer_free(&l);
        }
    cr_assert_eq(count, 0);
}

/* ---- the table ---- */

Test(attn_fault_way, every_way_belongs_to_a_fault)
{
    size_t ways = 0;

    for (size_t n = 0; n < attn_fault_count(); n++)
        for (size_t k = 0; attn_fault_way(attn_fault_at(n), k); k++)
            ways++;
    cr_assert_eq(ways, ATTN_WAYS_AXIS.count + ATTN_WAYS_EMPTY.count +
                           ATTN_WAYS_PROJECT.count + ATTN_WAYS_SOFTMAX.count);
}
