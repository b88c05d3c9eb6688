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
enum half { JUDGED, RUN_AGAIN, HALVES };

static const struct check {
    struct attn_check_row row;
    attn_check_fn *run;
    enum half half;
} CHECKS[] = {
    { { 1, "shapes_input_and_projections", "X",
        "Widths agree: X·W_Q, Q and K equal, V free, W_O back to d_model." },
      attn_check_inputs, JUDGED },
    { { 2, "qkv_rows", "Q,K,V",
        "Q, K and V have their shapes; rows recomputed on their own." },
      attn_check_qkv, JUDGED },
    { { 3, "score_shape_and_scale", "S",
        "S_ij against q_i·k_j; the measured scale against the one asked." },
      attn_check_score, JUDGED },
    { { 4, "mask_entries", "M",
        "Allowed and forbidden pairs counted, entries recomputed from the rules." },
      attn_check_mask, JUDGED },
    { { 5, "softmax_rows", "A",
        "Weights finite, in [0,1], rows sum to 1; rows recomputed from S + M." },
      attn_check_softmax, JUDGED },
    { { 6, "forbidden_zeros", "A",
        "The weight is exactly 0 at every forbidden pair." }, attn_check_zeros, JUDGED },
    { { 7, "weighted_values", "H",
        "Rows of H equal the sum of the contributions A_ij v_j." },
      attn_check_mix, JUDGED },
    { { 8, "output_projection", "Y",
        "Y is H·W_O in its right orientation, of width d_model." },
      attn_check_output, JUDGED },
    { { 9, "batch_independence", "Y",
        "An item alone gives the same bits; changing the other items changes nothing." },
      attn_check_batch, RUN_AGAIN },
    { { 10, "prefix_invariance", "Y",
        "Under a causal rule, changed later tokens leave earlier rows the same bits." },
      attn_check_prefix, RUN_AGAIN },
    { { 11, "document_isolation", "Y",
        "Changed tokens of another document change nothing." },
      attn_check_documents, RUN_AGAIN },
    { { 12, "masked_value_poison", "Y",
        "Huge numbers in keys and values that no query may read change nothing." },
      attn_check_poison, RUN_AGAIN },
    { { 13, "tiled_agreement", "Y",
        "The dense and the tiled path agree within stated rounding." },
      attn_check_tiled, RUN_AGAIN },
    { { 14, "gradients", "dX",
        "Analytic gradients against central differences." }, check_gradients, JUDGED },
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

/* ---- memory ------------------------------------------------------------------------ */

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

/* Of one half. */
static size_t scratch_bytes(const struct attn_dims *d)
{
    return aligned(widest(d) * sizeof(struct attn_judged)) +
           aligned(d->T_kv * sizeof(struct attn_judged)) +
           aligned(ATTN_JUDGE_SCRATCH(d->d_k) * sizeof(double)) +
           aligned(d->T_kv * sizeof(double)) + aligned(d->T_kv);
}

size_t attn_audit_bytes(const struct attn_problem *p, const struct attn_plan *plan,
                        enum attn_audit_level level)
{
    const struct attn_dims *d = &p->d;

    if (level == ATTN_AUDIT_OFF)
        return 0;
    return aligned((attn_audit_rows_wanted(p, level) + 1) *
                   sizeof(struct attn_audit_row)) +
           HALVES * scratch_bytes(d) + aligned(attn_rerun_bytes(p, plan));
}

static bool fail_memory(const struct attn_auditor *a)
{
    return attn_fail(a->err, ATTN_E_MEMORY, "audit", NULL, a->arena->size,
                     a->arena->used);
}

static bool take_scratch(struct attn_auditor *a)
{
    const struct attn_dims *d = &a->p->d;

    a->judged = attn_arena_take(a->arena, widest(d) * sizeof a->judged[0]);
    a->weights = attn_arena_take(a->arena, d->T_kv * sizeof a->weights[0]);
    a->scratch = attn_arena_take(a->arena, ATTN_JUDGE_SCRATCH(d->d_k) * sizeof(double));
    a->logits.logit = attn_arena_take(a->arena, d->T_kv * sizeof(double));
    a->logits.allow = attn_arena_take(a->arena, d->T_kv);
    return (a->judged && a->weights && a->scratch && a->logits.logit &&
            a->logits.allow) ||
           fail_memory(a);
}

/* The rows looked at; while there are few, all of them when a fault is injected. */
static bool take_rows(struct attn_auditor *a, enum attn_audit_level level)
{
    enum { INJECTED_PAIRS = 1 << 16 };
    const struct attn_dims *d = &a->p->d;
    const size_t rows = attn_audit_rows_wanted(a->p, level), all = d->B * d->h * d->T_q;

    a->all_rows = rows == all || (a->swap && all * d->T_kv <= INJECTED_PAIRS);
    a->drawn =
        attn_arena_take(a->arena, (a->all_rows ? 1 : rows + 1) * sizeof a->drawn[0]);
    if (!a->drawn)
        return fail_memory(a);
    if (a->all_rows)
        a->row_count = all;
    else
        attn_audit_draw(a, rows);
    return true;
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

/* ---- two halves: what is judged, and what is run again ----------------------------- */

enum { SIDE_BY_SIDE_PAIRS = 1 << 17 }; /* from which on a second thread is worth waking */

/* An auditor of its own, so that the halves may go on side by side. */
struct audit_half {
    struct attn_auditor a;
    struct attn_arena arena; /* of what is run again */
    struct attn_err err;
    struct attn_audit *audit;
    bool done;
};

static bool run_check(struct attn_auditor *a, size_t n, struct attn_audit *audit)
{
    struct attn_finding *f = &audit->finding[n];

    *f =
        (struct attn_finding){.row = &CHECKS[n].row, .status = ATTN_PASS, .gradient = -1};
    if (!attn_audit_goes_on(a))
        return false;
    if (n == 0 || a->inputs_fit)
        return CHECKS[n].run(a, f);
    attn_finding_skip(f,
                      "The inputs do not fit each other (check 1): nothing further can "
                      "be judged.");
    return true;
}

/* Every check of a half but the first of all. */
static void run_half(void *halves, size_t which)
{
    struct audit_half *const half = (struct audit_half *)halves + which;

    half->done = true;
    for (size_t n = 1; n < ATTN_COUNT(CHECKS) && half->done; n++)
        if (CHECKS[n].half == (enum half)which)
            half->done = run_check(&half->a, n, half->audit);
}

/* A half draws numbers of its own: they do not depend on how far the other is. */
static bool take_half(struct attn_auditor *a, enum half which, struct attn_audit *audit,
                      struct audit_half *half)
{
    *half = (struct audit_half){.a = *a, .audit = audit};
    if (!take_scratch(&half->a))
        return false;
    if (which == RUN_AGAIN) {
        half->arena.size = attn_rerun_bytes(a->p, a->plan);
        half->arena.base = attn_arena_take(a->arena, half->arena.size);
        if (!half->arena.base)
            return fail_memory(a);
        half->a.arena = &half->arena;
    }
    half->a.random = attn_random_u64(&a->random);
    half->a.err = &half->err;
    return true;
}

static bool run_checks(struct attn_auditor *a, struct attn_audit *audit)
{
    const struct attn_dims *const d = &a->p->d;
    struct audit_half half[HALVES];

    if (!run_check(a, 0, audit))
        return false;
    for (size_t h = 0; h < HALVES; h++)
        if (!take_half(a, (enum half)h, audit, &half[h]))
            return false;
    if (a->exec && a->exec->parallel_for &&
        d->B * d->h * d->T_q * d->T_kv >= SIDE_BY_SIDE_PAIRS)
        a->exec->parallel_for(a->exec->ctx, HALVES, run_half, half);
    else
        for (size_t h = 0; h < HALVES; h++)
            run_half(half, h);
    for (size_t h = 0; h < HALVES; h++)
        if (!half[h].done) {
            *a->err = half[h].err;
            return false;
        }
    audit->count = ATTN_COUNT(CHECKS);
    return true;
}

bool attn_audit_trace(const struct attn_problem *p, const struct attn_plan *plan,
                      const struct attn_trace *trace, const struct attn_grads *grads,
                      enum attn_audit_level level, uint64_t seed,
                      const struct attn_swap *swap, struct attn_arena *arena,
                      const struct attn_exec *exec, struct attn_audit *audit,
                      struct attn_err *err)
{
    const size_t mark = attn_arena_mark(arena);
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
    a.usable = usable_objects(&a);
    done = take_rows(&a, level);
    if (done) {
        audit->rows_looked_at = a.row_count;
        done = run_checks(&a, audit);
    }
    attn_arena_release(arena, mark);
    if (done)
        sum_up(audit);
    return done;
}
