/*
 * attn_audit.c - the audit: checks in the order in which a wrong layer should be
 * searched.
 * Not here: the checks themselves (attn_audit_rows.c, attn_audit_weights.c,
 * attn_audit_tokens.c, …).
 * Start reading at CHECKS, then attn_audit_trace.
 */
#include "core/attn_audit.h"

#include <assert.h>
#include <math.h>
#include <string.h>

const char *const ATTN_STATUS_NAMES[] = {
    [ATTN_PASS] = "pass",
    [ATTN_WARN] = "warn",
    [ATTN_FAIL] = "fail",
    [ATTN_NOT_APPLICABLE] = "not_applicable",
};
_Static_assert(ATTN_COUNT(ATTN_STATUS_NAMES) == ATTN_STATUS_COUNT, "one name per status");

static attn_check_fn check_gradients;

/* clang-format off */
static const struct check {
    struct attn_check_row row;
    attn_check_fn *run;
} CHECKS[] = {
    { { 1, "shapes_input_and_projections", "X",
        "Widths agree: X·W_Q, Q and K equal, V free, W_O back to d_model." },
      attn_check_inputs },
    { { 2, "qkv_rows", "Q,K,V",
        "Q, K and V have their shapes; rows recomputed on their own." }, attn_check_qkv },
    { { 3, "score_shape_and_scale", "S",
        "S_ij against q_i·k_j; the measured scale against the one asked." },
      attn_check_score },
    { { 4, "mask_entries", "M",
        "Allowed and forbidden pairs counted, entries recomputed from the rules." },
      attn_check_mask },
    { { 5, "softmax_rows", "A",
        "Weights finite, in [0,1], rows sum to 1; rows recomputed from S + M." },
      attn_check_softmax },
    { { 6, "forbidden_zeros", "A",
        "The weight is exactly 0 at every forbidden pair." }, attn_check_zeros },
    { { 7, "weighted_values", "H",
        "Rows of H equal the sum of the contributions A_ij v_j." }, attn_check_mix },
    { { 8, "output_projection", "Y",
        "Y is H·W_O in its right orientation, of width d_model." }, attn_check_output },
    { { 9, "batch_independence", "Y",
        "An item alone gives the same bits; changing the other items changes nothing." },
      attn_check_batch },
    { { 10, "prefix_invariance", "Y",
        "Under a causal rule, changed later tokens leave earlier rows the same bits." },
      attn_check_prefix },
    { { 11, "document_isolation", "Y",
        "Changed tokens of another document change nothing." }, attn_check_documents },
    { { 12, "masked_value_poison", "Y",
        "Huge numbers in keys and values that no query may read change nothing." },
      attn_check_poison },
    { { 13, "tiled_agreement", "Y",
        "The dense and the tiled path agree within stated rounding." },
      attn_check_tiled },
    { { 14, "gradients", "dX",
        "Analytic gradients against central differences." }, check_gradients },
};
/* clang-format on */
_Static_assert(ATTN_COUNT(CHECKS) <= ATTN_CHECKS_MAX,
               "struct attn_audit has room for all");

size_t attn_check_count(void)
{
    return ATTN_COUNT(CHECKS);
}

const struct attn_check_row *attn_check_at(size_t n)
{
    assert(n < ATTN_COUNT(CHECKS));
    return &CHECKS[n].row;
}

/* ---- check 14: judged by attn_grad itself, in float64 ------------------------------ */

static bool check_gradients(struct attn_auditor *a, struct attn_finding *f)
{
    const struct attn_grad_check *check = a->grads ? &a->grads->check : NULL;

    if (!check || !check->done) {
        attn_finding_skip(
            f, check ? "The check of the gradients was not asked (check: false)."
                     : "No gradients were asked.");
        return true;
    }
    f->status = check->pass ? ATTN_PASS : ATTN_FAIL;
    f->gradient = check->first;
    f->expected =
        "Each analytic entry equals (f(x + step) - f(x - step)) / (2 step) of the layer "
        "in float64, within a relative error of {1}.";
    f->observed =
        check->pass
            ? "{0} entries were compared; the largest relative error is {2}."
            : "The worst of {0} entries is {3}, where the difference quotient gives {4}: "
              "a relative error of {2}.";
    f->detail =
        "The step is {5}. Central differences need no formula of the gradient, only the "
        "layer itself, so they judge it from outside.";
    f->fact[0] = (double)check->entries;
    f->fact[1] = check->tolerance;
    f->fact[2] = check->worst_relative_error;
    f->fact[3] = check->analytic;
    f->fact[4] = check->numeric;
    f->fact[5] = check->step;
    return true;
}

/* ---- which rows -------------------------------------------------------------------- */

enum { ROWS_MIN = 2, ROWS_MAX = 64, ROWS_EACH = 512, ROWS_SPECIAL = 4 };
enum { SMALL_PAIRS = 64 };         /* up to here every row is looked at in any case */
enum { INJECTED_PAIRS = 1 << 16 }; /* and up to here when a fault is injected */

/* Rows that are drawn: one for each head of each item, and one for every ROWS_EACH that
   there are, as a row costs the judge's plain loops about what twenty cost the layer. */
static size_t rows_drawn(const struct attn_dims *d)
{
    const size_t heads = attn_within(d->B * d->h, ROWS_MIN, ROWS_MAX);

    return attn_within(d->B * d->h * d->T_q / ROWS_EACH, heads, ROWS_MAX);
}

/* Those, and some that are special. */
static size_t rows_wanted(const struct attn_problem *p, enum attn_audit_level level)
{
    const size_t all = p->d.B * p->d.h * p->d.T_q, n = rows_drawn(&p->d) + ROWS_SPECIAL;

    if (level == ATTN_AUDIT_FULL || all * p->d.T_kv <= SMALL_PAIRS)
        return all;
    return n < all ? n : all;
}

static size_t row_number(const struct attn_dims *d, struct attn_audit_row r)
{
    return (r.b * d->h + r.h) * d->T_q + r.i;
}

static struct attn_audit_row row_of(const struct attn_dims *d, size_t n)
{
    return (struct attn_audit_row){n / d->T_q / d->h, n / d->T_q % d->h, n % d->T_q};
}

struct attn_audit_row attn_audit_row(const struct attn_auditor *a, size_t n)
{
    assert(n < a->row_count);
    return a->all_rows ? row_of(&a->p->d, n) : a->drawn[n];
}

bool attn_audit_nan_row(const struct attn_auditor *a, struct attn_audit_row r)
{
    if (a->p->empty_rows != ATTN_EMPTY_NAN)
        return false;
    for (size_t j = 0; j < a->p->d.T_kv; j++)
        if (attn_judge_allowed(a->p, a->trace, r.b, r.h, r.i, j))
            return false;
    return true;
}

/* The first row without an allowed key, and the first with some forbidden one, as far as
   the trace says; or the row given. */
static size_t special_row(const struct attn_auditor *a, bool empty, size_t otherwise)
{
    const struct attn_dims *d = &a->p->d;
    const struct attn_tensor *allowed = &a->trace->t[ATTN_ALLOWED];
    const size_t rows = d->B * d->h * d->T_q;

    if (empty) {
        const uint8_t *hit = a->trace->empty ? memchr(a->trace->empty, 1, rows) : NULL;

        return hit ? (size_t)(hit - a->trace->empty) : otherwise;
    }
    if (!attn_audit_has(a, ATTN_ALLOWED))
        return otherwise;
    for (size_t r = 0; r < rows; r++) {
        const uint8_t *keys = (const uint8_t *)allowed->p + r * d->T_kv;

        if (memchr(keys, 0, d->T_kv) && memchr(keys, 1, d->T_kv))
            return r;
    }
    return otherwise;
}

/* Sorted and each once, so that places of first differences are the first in order. */
static void insert_row(struct attn_auditor *a, size_t number)
{
    const struct attn_dims *d = &a->p->d;
    size_t at = a->row_count;

    while (at > 0 && row_number(d, a->drawn[at - 1]) >= number)
        if (row_number(d, a->drawn[--at]) == number)
            return;
    memmove(&a->drawn[at + 1], &a->drawn[at], (a->row_count - at) * sizeof a->drawn[0]);
    a->drawn[at] = row_of(d, number);
    a->row_count++;
}

/* Every item and head in turn, from a drawn one on. */
static void draw_rows(struct attn_auditor *a, size_t most)
{
    const struct attn_dims *d = &a->p->d;
    const size_t last = d->B * d->h * d->T_q - 1,
                 start = attn_random_below(&a->random, d->B * d->h);
    size_t wanted;

    insert_row(a, 0);
    insert_row(a, last);
    insert_row(a, special_row(a, true, last));
    insert_row(a, special_row(a, false, last));
    wanted = attn_within(a->row_count + rows_drawn(d), 0, most);
    for (size_t n = start; a->row_count < wanted && n < start + 4 * most; n++) {
        const struct attn_audit_row r = {n % d->B, n / d->B % d->h,
                                         attn_random_below(&a->random, d->T_q)};

        insert_row(a, row_number(d, r));
    }
}

/* ---- scratch ----------------------------------------------------------------------- */

static size_t max(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t widest(const struct attn_dims *d)
{
    return max(max(d->T_kv, d->d_model), max(d->h * d->d_v, d->d_k));
}

static size_t aligned(size_t bytes)
{
    return (bytes + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;
}

size_t attn_audit_bytes(const struct attn_problem *p, const struct attn_plan *plan,
                        enum attn_audit_level level)
{
    const struct attn_dims *d = &p->d;

    if (level == ATTN_AUDIT_OFF)
        return 0;
    return aligned((rows_wanted(p, level) + 1) * sizeof(struct attn_audit_row)) +
           aligned(widest(d) * sizeof(struct attn_judged)) +
           aligned(d->T_kv * sizeof(struct attn_judged)) +
           aligned(ATTN_JUDGE_SCRATCH(d->d_k) * sizeof(double)) +
           aligned(d->T_kv * sizeof(double)) + aligned(d->T_kv) +
           attn_rerun_bytes(p, plan);
}

static bool take_scratch(struct attn_auditor *a, size_t rows)
{
    const struct attn_dims *d = &a->p->d;

    a->drawn = attn_arena_take(a->arena, (rows + 1) * sizeof a->drawn[0]);
    a->judged = attn_arena_take(a->arena, widest(d) * sizeof a->judged[0]);
    a->weights = attn_arena_take(a->arena, d->T_kv * sizeof a->weights[0]);
    a->scratch = attn_arena_take(a->arena, ATTN_JUDGE_SCRATCH(d->d_k) * sizeof(double));
    a->logits.logit = attn_arena_take(a->arena, d->T_kv * sizeof(double));
    a->logits.allow = attn_arena_take(a->arena, d->T_kv);
    if (a->drawn && a->judged && a->weights && a->scratch && a->logits.logit &&
        a->logits.allow)
        return true;
    return attn_fail(a->err, ATTN_E_MEMORY, "audit", NULL, a->arena->size,
                     a->arena->used);
}

bool attn_audit_goes_on(const struct attn_auditor *a)
{
    if (a->exec && a->exec->stop && a->exec->stop(a->exec->ctx))
        return attn_fail(a->err, ATTN_E_DEADLINE, "audit", NULL, 0, 0);
    return true;
}

/* ---- the audit --------------------------------------------------------------------- */

static bool right_shape(const struct attn_auditor *a, enum attn_object o)
{
    struct attn_tensor want;
    const struct attn_tensor *got = &a->trace->t[o];

    attn_object_full_shape(a->p, o, &want);
    return got->rank == want.rank && got->dtype == want.dtype &&
           memcmp(got->dim, want.dim, want.rank * sizeof want.dim[0]) == 0;
}

static uint32_t usable_objects(const struct attn_auditor *a)
{
    uint32_t usable = 0;

    for (int o = ATTN_Q_PRE; o < ATTN_OBJECT_COUNT; o++)
        if (a->trace->t[o].p && right_shape(a, (enum attn_object)o))
            usable |= ATTN_BIT(o);
    return usable;
}

/* Objects of the forward layer are searched first, in their order, then gradients. */
static int search_order(const struct attn_finding *f)
{
    return f->gradient >= 0 ? ATTN_OBJECT_COUNT + f->gradient : (int)f->object;
}

static const char *wrong_name(const struct attn_finding *f)
{
    if (f->gradient >= 0)
        return ATTN_GRADIENTS[f->gradient].name;
    return f->object == ATTN_X ? NULL : ATTN_OBJECTS[f->object].name;
}

static void sum_up(struct attn_audit *audit)
{
    const struct attn_finding *first = NULL;

    audit->status = ATTN_PASS;
    audit->first_incorrect = NULL;
    for (size_t n = 0; n < audit->count; n++) {
        const struct attn_finding *f = &audit->finding[n];

        if (f->status == ATTN_WARN && audit->status == ATTN_PASS)
            audit->status = ATTN_WARN;
        if (f->status != ATTN_FAIL)
            continue;
        audit->status = ATTN_FAIL;
        if (!first || search_order(f) < search_order(first))
            first = f;
    }
    if (first)
        audit->first_incorrect = wrong_name(first);
}

static bool run_checks(struct attn_auditor *a, struct attn_audit *audit)
{
    for (size_t n = 0; n < ATTN_COUNT(CHECKS); n++) {
        struct attn_finding *f = &audit->finding[n];

        *f = (struct attn_finding){
            .row = &CHECKS[n].row, .status = ATTN_PASS, .gradient = -1};
        audit->count = n + 1;
        if (!attn_audit_goes_on(a))
            return false;
        if (n > 0 && !a->inputs_fit)
            attn_finding_skip(
                f, "The inputs do not fit each other (check 1): nothing further can "
                   "be judged.");
        else if (!CHECKS[n].run(a, f))
            return false;
    }
    return true;
}

bool attn_audit_trace(const struct attn_problem *p, const struct attn_plan *plan,
                      const struct attn_trace *trace, const struct attn_grads *grads,
                      enum attn_audit_level level, uint64_t seed,
                      const struct attn_swap *swap, struct attn_arena *arena,
                      const struct attn_exec *exec, struct attn_audit *audit,
                      struct attn_err *err)
{
    const size_t mark = attn_arena_mark(arena), rows = rows_wanted(p, level);
    const size_t all = p->d.B * p->d.h * p->d.T_q;
    struct attn_auditor a = {.p = p,
                             .plan = plan,
                             .trace = trace,
                             .grads = grads,
                             .swap = swap,
                             .arena = arena,
                             .exec = exec,
                             .err = err,
                             .random = seed,
                             .full = level == ATTN_AUDIT_FULL};
    bool done;

    *audit = (struct attn_audit){.status = ATTN_NOT_APPLICABLE, .seed = seed};
    if (level == ATTN_AUDIT_OFF)
        return true;
    a.all_rows = rows == all || (swap && all * p->d.T_kv <= INJECTED_PAIRS);
    done = take_scratch(&a, a.all_rows ? 0 : rows);
    if (done) {
        a.usable = usable_objects(&a);
        if (a.all_rows)
            a.row_count = all;
        else
            draw_rows(&a, rows);
        audit->rows_looked_at = a.row_count;
        done = run_checks(&a, audit);
    }
    attn_arena_release(arena, mark);
    if (done)
        sum_up(audit);
    return done;
}
