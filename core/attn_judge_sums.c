/*
 * attn_judge_sums.c - the judge's sums of products and of the sizes of their terms.
 * Not here: what is summed, and the tolerances that follow (attn_judge.c).
 * Start reading at attn_judge_add_terms.
 */
#include "core/attn_judge.h"

#include <math.h>
#include <string.h>

/* Two numbers beside each other, as every machine has them: the compiler leaves plain
   loops of numbers and bounds as they are. */
typedef double two __attribute__((vector_size(16)));
typedef uint64_t two_words __attribute__((vector_size(16)));
enum { TWO = 2, PAIRS = 4, EIGHT = TWO * PAIRS };

static inline two sizes(two x)
{
    return (two)((two_words)x & (UINT64_MAX >> 1));
}

static inline two two_at(const struct attn_tensor *t, size_t from)
{
    two x;

    if (t->dtype == ATTN_F64)
        memcpy(&x, (const double *)t->p + from, sizeof x);
    else
        x = (two){(double)((const float *)t->p)[from],
                  (double)((const float *)t->p)[from + 1]};
    return x;
}

void attn_judge_add_sizes(const struct attn_tensor *t, size_t from, size_t n, double by,
                          double *sum)
{
    size_t c = 0;

    for (; c + TWO <= n; c += TWO) {
        two to;

        memcpy(&to, sum + c, sizeof to);
        to += by * sizes(two_at(t, from + c));
        memcpy(sum + c, &to, sizeof to);
    }
    for (; c < n; c++)
        sum[c] += by * fabs(attn_number(t, from + c));
}

void attn_judge_largest(const struct attn_tensor *t, size_t from, size_t n,
                        double *largest)
{
    size_t c = 0;

    for (; c + TWO <= n; c += TWO) {
        const two size = sizes(two_at(t, from + c));
        two most;

        memcpy(&most, largest + c, sizeof most);
        const two_words more = (two_words)(size > most);

        most = (two)(((two_words)size & more) | ((two_words)most & ~more));
        memcpy(largest + c, &most, sizeof most);
    }
    for (; c < n; c++) {
        const double size = fabs(attn_number(t, from + c));

        largest[c] = size > largest[c] ? size : largest[c];
    }
}

/* value[c] += sum_k x_k t[row_k + c], error[c] += sum_k size_k |t[row_k + c]|, c < n. */
static void add_few(const struct attn_tensor *t, size_t terms,
                    const struct attn_term *term, size_t n, double *value, double *error)
{
    size_t c = 0;

    for (; c + EIGHT <= n; c += EIGHT) {
        two v[PAIRS], e[PAIRS];

        memcpy(v, value + c, sizeof v);
        memcpy(e, error + c, sizeof e);
        for (size_t k = 0; k < terms; k++) {
#pragma GCC unroll 4
            for (size_t l = 0; l < PAIRS; l++) {
                const two w = two_at(t, term[k].row + c + TWO * l);

                v[l] += term[k].x * w;
                e[l] += term[k].size * sizes(w);
            }
        }
        memcpy(value + c, v, sizeof v);
        memcpy(error + c, e, sizeof e);
    }
    for (; c < n; c++)
        for (size_t k = 0; k < terms; k++) {
            const double w = attn_number(t, term[k].row + c);

            value[c] += term[k].x * w;
            error[c] += term[k].size * fabs(w);
        }
}

/* The same for any number of terms: a few rows at a time, since whoever walks down a
   column meets another page at each step. */
void attn_judge_add_terms(const struct attn_tensor *t, size_t terms,
                          struct attn_term *term, size_t n, struct attn_judged *out)
{
    enum { COLUMNS = 256, FEW = 4 };
    double value[COLUMNS], error[COLUMNS];

    for (size_t from = 0; from < n; from += COLUMNS) {
        const size_t some = n - from < COLUMNS ? n - from : COLUMNS;

        for (size_t c = 0; c < some; c++) {
            value[c] = out[from + c].value;
            error[c] = out[from + c].error;
        }
        for (size_t k = 0; k < terms; k += FEW)
            add_few(t, terms - k < FEW ? terms - k : FEW, term + k, some, value, error);
        for (size_t c = 0; c < some; c++)
            out[from + c] = (struct attn_judged){value[c], error[c]};
        for (size_t k = 0; k < terms; k++)
            term[k].row += some;
    }
}

double attn_judge_dot(const struct attn_tensor *t, size_t from, size_t n, const double *q,
                      double *size)
{
    two sums[2] = {{0}}, all[2] = {{0}};
    double sum;
    size_t c = 0;

    for (; c + 2 * TWO <= n; c += 2 * TWO)
#pragma GCC unroll 2
        for (size_t l = 0; l < 2; l++) {
            two x;

            memcpy(&x, q + c + TWO * l, sizeof x);
            x *= two_at(t, from + c + TWO * l);
            sums[l] += x;
            all[l] += sizes(x);
        }
    sums[0] += sums[1];
    all[0] += all[1];
    sum = sums[0][0] + sums[0][1];
    *size = all[0][0] + all[0][1];
    for (; c < n; c++) {
        const double x = q[c] * attn_number(t, from + c);

        sum += x;
        *size += fabs(x);
    }
    return sum;
}
