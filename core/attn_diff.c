/*
 * attn_diff.c - collects the differences of one check and puts them into its finding.
 * Not here: what is compared (attn_audit_*.c).
 * Start reading at attn_diff_note.
 */
#include "core/attn_audit.h"

#include <math.h>
#include <string.h>

static void keep_first(struct attn_diff *diff, enum attn_object object,
                       const size_t at[4], double got, struct attn_judged want)
{
    if (diff->bad)
        return;
    diff->bad = true;
    diff->object = object;
    memcpy(diff->at, at, sizeof diff->at);
    diff->want = want.value;
    diff->got = got;
    diff->allowed = want.error;
}

void attn_diff_note(struct attn_diff *diff, enum attn_object object, const size_t at[4],
                    double got, struct attn_judged want)
{
    const double off = fabs(got - want.value);

    /* A quotient only where it is larger than all before: most are not. */
    if ((off > diff->worst_ratio * want.error || diff->compared == 0) && isfinite(off)) {
        diff->worst_ratio = want.error > 0.0 ? off / want.error
                            : off > 0.0      ? INFINITY
                                             : 0.0;
        diff->worst = off;
        diff->worst_allowed = want.error;
    }
    diff->compared++;
    if (!attn_judge_near(got, want))
        keep_first(diff, object, at, got, want);
}

void attn_diff_exact(struct attn_diff *diff, enum attn_object object, const size_t at[4],
                     double got, double want)
{
    diff->compared++;
    if (got == want || (isnan(got) && isnan(want)))
        return;
    if (isfinite(got - want))
        diff->worst = fmax(diff->worst, fabs(got - want));
    keep_first(diff, object, at, got, (struct attn_judged){want, 0.0});
}

/* ---- numbers that overflowed ------------------------------------------------------- */

void attn_diff_either(struct attn_diff *diff, enum attn_object object, const size_t at[4],
                      double got, struct attn_judged want)
{
    if (isnan(want.value) && want.error == 0.0)
        attn_diff_exact(diff, object, at, got, want.value);
    else
        attn_diff_note(diff, object, at, got, want);
}

/* The first number of a tensor that is not finite; its count when there is none. */
static size_t first_not_finite(const struct attn_tensor *t)
{
    enum { PIECE = 4096 };
    const struct attn_kernel *kernel = attn_kernel_of(t->dtype);
    const size_t n = attn_tensor_count(t), bytes = attn_dtype_bytes(t->dtype);

    for (size_t from = 0; from < n; from += PIECE) {
        const size_t end = n - from < PIECE ? n : from + PIECE;

        if (kernel->all_finite(end - from, (const char *)t->p + from * bytes))
            continue;
        for (size_t k = from; k < end; k++)
            if (!isfinite(attn_number(t, k)))
                return k;
    }
    return n;
}

void attn_diff_scan(const struct attn_auditor *a, enum attn_object o,
                    struct attn_diff *diff)
{
    const struct attn_tensor *t = &a->trace->t[o];
    size_t at[4] = {SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX}, place;

    if (diff->bad || !attn_audit_has(a, o))
        return;
    place = first_not_finite(t);
    if (place == attn_tensor_count(t))
        return;

    const double got = attn_number(t, place);

    for (size_t axis = t->rank; axis-- > 0;) {
        at[axis] = place % t->dim[axis];
        place /= t->dim[axis];
    }
    attn_diff_note(diff, o, at, got, (struct attn_judged){NAN, 0.0});
}

void attn_finding_set(struct attn_finding *f, const struct attn_diff *diff,
                      const struct attn_words *words)
{
    f->status = diff->bad ? ATTN_FAIL : ATTN_PASS;
    f->expected = words->expected;
    f->observed = diff->bad ? words->fail : words->pass;
    f->detail = words->detail;
    f->fact[0] = (double)diff->rows;
    f->fact[1] = (double)diff->compared;
    f->fact[2] = diff->worst;
    f->fact[3] = diff->worst_allowed;
    f->fact[4] = diff->want;
    f->fact[5] = diff->got;
    f->fact[6] = diff->allowed;
    if (diff->bad && !isfinite(diff->got) && !isfinite(diff->want))
        f->observed = "{5} found, at the first number that is not finite: here or on the "
                      "way to it the layer left the range of its dtype.";
    f->has_place = diff->bad;
    if (!diff->bad)
        return;
    f->object = ATTN_OBJECTS[diff->object].counts_as;
    memcpy(f->at, diff->at, sizeof f->at);
}

void attn_finding_skip(struct attn_finding *f, const char *reason)
{
    f->status = ATTN_NOT_APPLICABLE;
    f->expected = f->observed = "";
    f->detail = reason;
}

static const char *const SHAPE_WANT[ATTN_RANK_MAX + 1] = {
    [3] = "The shape is ({0}, {1}, {2}).",
    [4] = "The shape is ({0}, {1}, {2}, {3}).",
    [5] = "The shape is ({0}, {1}, {2}, {3}, {4}).",
};
static const char *const SHAPE_GOT[ATTN_RANK_MAX + 1] = {
    [1] = "It is ({5}).",
    [2] = "It is ({5}, {6}).",
    [3] = "It is ({5}, {6}, {7}).",
    [4] = "It is ({5}, {6}, {7}, {8}).",
    [5] = "It is ({5}, {6}, {7}, {8}, {9}).",
};

bool attn_finding_shape(const struct attn_auditor *a, enum attn_object o,
                        struct attn_finding *f)
{
    struct attn_tensor want;
    const struct attn_tensor *got = &a->trace->t[o];

    if (!got->p || attn_audit_has(a, o))
        return true;
    attn_object_full_shape(a->p, o, &want);
    f->status = ATTN_FAIL;
    f->object = ATTN_OBJECTS[o].counts_as;
    f->expected = SHAPE_WANT[want.rank];
    f->observed = got->rank >= 1 && got->rank <= ATTN_RANK_MAX ? SHAPE_GOT[got->rank]
                                                               : "It has no axes.";
    f->detail = "The shape is wrong, so no number of this object was judged.";
    for (size_t n = 0; n < ATTN_RANK_MAX; n++) {
        f->fact[n] = n < want.rank ? (double)want.dim[n] : 0.0;
        f->fact[5 + n] = n < got->rank ? (double)got->dim[n] : 0.0;
    }
    return false;
}
