/*
 * attn_softmax.c - the stages SCORE, MASK and SOFTMAX: from Q and K to the weights A.
 * Not here: score functions (attn_score.c), rules (attn_mask.c), the row itself
 * (attn_kernel.inc), the path that holds no pairwise tensor (attn_tiled.c).
 * Start reading at attn_stage_score.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Row i of head h of item b of an object (B,h,T_q,…), or NULL when it is not held. */
static void *row_of(const struct attn_trace *t, enum attn_object o, size_t b, size_t h,
                    size_t i)
{
    if (!t->t[o].p)
        return NULL;

    const struct attn_mat m = attn_slice(&t->t[o], b, h);

    return (char *)m.p + i * m.ld * attn_dtype_bytes(m.dtype);
}

/* ---- SCORE ---- */

/* Work between two questions whether to stop, in multiply-adds: about ten milliseconds.
 */
enum { POLL_PRODUCTS = 1 << 28, POLL_TANHS = 1 << 22 };

static void product_block(struct attn_mat S, struct attn_mat Q, struct attn_mat K,
                          double scale)
{
    const struct attn_pack *pack = attn_pack_of(S.dtype);

    if (pack) {
        pack->scores(S, Q, K, scale);
        return;
    }
    attn_gemm(S, Q, false, K, true, 1, 0);
    for (size_t r = 0; scale != 1 && r < S.rows; r++) {
        void *s = (char *)S.p + r * S.ld * attn_dtype_bytes(S.dtype);

        attn_kernel_of(S.dtype)->scale_cap(S.cols, s, scale, 0, s);
    }
}

/* One query and keys k [n, d_k] by the pair function, in double. */
static void pair_row(const struct attn_problem *p, size_t n, const char *q, const char *k,
                     void *s)
{
    const struct attn_kernel *kernel = attn_kernel_of(p->dtype);
    const char *v_a = p->in[ATTN_IN_V_A].p;
    const size_t d_k = p->d.d_k, bytes = attn_dtype_bytes(p->dtype);
    double x[ATTN_SCORE_PIECE], y[ATTN_SCORE_PIECE], v[ATTN_SCORE_PIECE];

    for (size_t c = 0; c < d_k; c += ATTN_SCORE_PIECE) {
        const size_t some = d_k - c < ATTN_SCORE_PIECE ? d_k - c : ATTN_SCORE_PIECE;

        kernel->to_double(some, q + c * bytes, x);
        if (v_a)
            kernel->to_double(some, v_a + c * bytes, v);
        for (size_t j = 0; j < n; j++) {
            kernel->to_double(some, k + (j * d_k + c) * bytes, y);
            kernel->set(s, j,
                        p->score->pair(some, x, y, v_a ? v : NULL, 0, NULL, NULL, NULL) +
                            (c > 0 ? kernel->get(s, j) : 0));
        }
    }
}

static void pair_block(const struct attn_problem *p, struct attn_mat S, struct attn_mat Q,
                       struct attn_mat K, double scale)
{
    const size_t bytes = attn_dtype_bytes(S.dtype);

    for (size_t r = 0; r < S.rows; r++) {
        void *s = (char *)S.p + r * S.ld * bytes;
        const char *q = (const char *)Q.p + r * Q.ld * bytes;

        if (p->score->keys)
            p->score->keys(S.dtype, S.cols, Q.cols, q, K.p, p->in[ATTN_IN_V_A].p, s);
        else
            pair_row(p, S.cols, q, K.p, s);
        if (scale != 1)
            attn_kernel_of(S.dtype)->scale_cap(S.cols, s, scale, 0, s);
    }
}

/* Columns first … first + cols - 1. */
static struct attn_mat columns(struct attn_mat m, size_t first, size_t cols)
{
    m.p = (char *)m.p + first * attn_dtype_bytes(m.dtype);
    m.cols = cols;
    return m;
}

bool attn_score_block(const struct attn_run_ctx *run, struct attn_mat S,
                      struct attn_mat Q, struct attn_mat K, double scale,
                      struct attn_err *err)
{
    const bool product = run->p->score->bilinear;
    const size_t each = S.rows * Q.cols;
    const size_t keys = (product ? POLL_PRODUCTS : POLL_TANHS) / each / 64 * 64 + 64;

    for (size_t j = 0; j < K.rows; j += keys) {
        const size_t some = K.rows - j < keys ? K.rows - j : keys;
        const struct attn_mat s = columns(S, j, some), k = attn_mat_rows(K, j, some);

        if (j > 0 && attn_stopped(run, err))
            return false;
        if (product)
            product_block(s, Q, k, scale);
        else
            pair_block(run->p, s, Q, k, scale);
    }
    return true;
}

/* S_raw = Q K^T (or the additive score), S = softcap(S_raw * scale / temperature): every
   pair, forbidden ones too. */
bool attn_stage_score(const struct attn_run_ctx *run, struct attn_piece piece,
                      struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const struct attn_kernel *kernel = attn_kernel_of(p->dtype);
    const size_t rows = piece.i1 - piece.i0, g = attn_kv_head(&p->d, piece.h);
    const bool raw = run->t->t[ATTN_S_RAW].p != NULL;
    const double scale = p->scale / p->temperature;
    const struct attn_mat first =
        attn_mat_rows(attn_slice(&run->t->t[raw ? ATTN_S_RAW : ATTN_S], piece.b, piece.h),
                      piece.i0, rows);

    if (!attn_score_block(run, first,
                          attn_mat_rows(attn_slice(&run->t->t[ATTN_Q], piece.b, piece.h),
                                        piece.i0, rows),
                          attn_slice(&run->t->t[ATTN_K], piece.b, g), raw ? 1 : scale,
                          err))
        return false;
    if (run->t->t[ATTN_S].p && (raw || p->softcap > 0))
        kernel->scale_cap(rows * first.cols, first.p, raw ? scale : 1, p->softcap,
                          row_of(run->t, ATTN_S, piece.b, piece.h, piece.i0));
    return true;
}

/* ---- MASK ---- */

static void add_position(const struct attn_problem *p, const struct attn_position *x,
                         size_t b, size_t h, size_t i, size_t j0, size_t j1, double *m)
{
    if (x->row->bias_row != NULL) {
        x->row->bias_row(p, x, b, h, i, j0, j1, m);
        return;
    }
    for (size_t j = j0; x->row->bias != NULL && j < j1; j++)
        m[j - j0] += x->row->bias(p, x, b, h, i, j);
}

bool attn_bias_row(const struct attn_problem *p, size_t b, size_t h, size_t i, size_t j0,
                   size_t j1, double *m)
{
    const struct attn_table *t = &p->additive;

    if (!attn_is_biased(p))
        return false;

    const double *added =
        t->p ? (const double *)t->p + b * t->stride_b + h * t->stride_h + i * t->stride_i
             : NULL;

    for (size_t j = j0; j < j1; j++)
        m[j - j0] = added && added[j] > -INFINITY ? added[j] : 0;
    for (size_t n = 0; n < p->position_count; n++)
        add_position(p, &p->position[n], b, h, i, j0, j1, m);
    return true;
}

/* M of one row: bias where allowed, -Infinity elsewhere. */
static void mask_row(const struct attn_problem *p, size_t b, size_t h, size_t i,
                     const uint8_t *allow, void *m)
{
    enum { CHUNK = 256 };
    const struct attn_kernel *kernel = attn_kernel_of(p->dtype);
    const size_t bytes = attn_dtype_bytes(p->dtype);
    double bias[CHUNK];

    for (size_t j = 0; j < p->d.T_kv; j += CHUNK) {
        const size_t n = p->d.T_kv - j < CHUNK ? p->d.T_kv - j : CHUNK;
        void *to = (char *)m + j * bytes;
        const bool biased = attn_bias_row(p, b, h, i, j, j + n, bias);

        if (biased)
            kernel->from_double(n, bias, to);
        kernel->masked(n, NULL, biased ? to : NULL, allow + j, to);
    }
}

/* allowed from the rules, and M when held. */
bool attn_stage_mask(const struct attn_run_ctx *run, struct attn_piece piece,
                     struct attn_err *err)
{
    const struct attn_problem *p = run->p;

    (void)err;
    for (size_t i = piece.i0; i < piece.i1; i++) {
        uint8_t *allow = row_of(run->t, ATTN_ALLOWED, piece.b, piece.h, i);
        void *m = row_of(run->t, ATTN_M, piece.b, piece.h, i);
        size_t j0 = 0, j1 = p->d.T_kv;
        bool exact = false;

        attn_allow_range(p, piece.b, piece.h, i, &j0, &j1, &exact);
        memset(allow, 0, p->d.T_kv);
        if (exact)
            memset(allow + j0, 1, j1 - j0);
        else
            attn_allow_row(p, piece.b, piece.h, i, j0, j1, allow + j0);
        if (m)
            mask_row(p, piece.b, piece.h, i, allow, m);
    }
    return true;
}

/* ---- SOFTMAX ---- */

const double *attn_sink_of(const struct attn_problem *p, size_t h, double *sink)
{
    if (!p->in[ATTN_IN_SINK].p)
        return NULL;
    *sink = attn_tensor_get(&p->in[ATTN_IN_SINK], h);
    return sink;
}

bool attn_empty_fail(struct attn_err *err, size_t b, size_t h, size_t i)
{
    const bool first = err->code == ATTN_OK;

    attn_fail(err, ATTN_E_EMPTY_ROW, "A", NULL, 1, 0);
    if (first) {
        err->at[0] = b;
        err->at[1] = h;
        err->at[2] = i;
    }
    return false;
}

bool attn_allowed_span(const uint8_t *allow, size_t n, size_t *j0, size_t *j1)
{
    const uint8_t *first = memchr(allow, 1, n);

    if (!first)
        return false;
    *j0 = (size_t)(first - allow);
    *j1 = (size_t)((const uint8_t *)memrchr(allow, 1, n) - allow) + 1;
    return true;
}

/* A of one row with an allowed key in [j0, j1); returns its lse.  Rows of s, m, allow and
   a are whole; m may be NULL. */
static double softmax_row(const struct attn_problem *p, const uint8_t *allow, size_t j0,
                          size_t j1, const char *s, const char *m, const double *sink,
                          char *a)
{
    const struct attn_kernel *kernel = attn_kernel_of(p->dtype);
    const size_t bytes = attn_dtype_bytes(p->dtype);
    const bool all = !memchr(allow + j0, 0, j1 - j0);

    memset(a, 0, j0 * bytes);
    memset(a + j1 * bytes, 0, (p->d.T_kv - j1) * bytes);
    return kernel
        ->softmax_row(j1 - j0, s + j0 * bytes, m ? m + j0 * bytes : NULL,
                      all ? NULL : allow + j0, sink, a + j0 * bytes)
        .lse;
}

/* What a row without any allowed key gives; its sum of exponentials is 0 whatever the
 * mode. */
static bool empty_row(const struct attn_problem *p, size_t b, size_t h, size_t i, void *a,
                      struct attn_err *err)
{
    const double weight[] = {
        [ATTN_EMPTY_ZERO] = 0,
        [ATTN_EMPTY_NAN] = (double)NAN,
        [ATTN_EMPTY_UNIFORM] = 1 / (double)p->d.T_kv,
        [ATTN_EMPTY_ERROR] = 0,
    };

    if (p->empty_rows == ATTN_EMPTY_ERROR)
        return attn_empty_fail(err, b, h, i);
    attn_kernel_of(p->dtype)->fill(p->d.T_kv, weight[p->empty_rows], a);
    return true;
}

/*
 * A = softmax over keys of S + M, lse, S_masked and the flags of empty rows.
 *
 * A is exactly 0 where forbidden, whatever S holds there.  A row is NaN at its allowed
 * keys when an allowed score is NaN or +Infinity, or when all of them are -Infinity (0/0:
 * overflow has left nothing to weigh).  Empty rows have lse -Infinity, with a sink too.
 */
bool attn_stage_softmax(const struct attn_run_ctx *run, struct attn_piece piece,
                        struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const struct attn_kernel *kernel = attn_kernel_of(p->dtype);
    const size_t b = piece.b, h = piece.h;
    double value;
    const double *sink = attn_sink_of(p, h, &value);

    for (size_t i = piece.i0; i < piece.i1; i++) {
        const size_t row = (b * p->d.h + h) * p->d.T_q + i;
        const uint8_t *allow = row_of(run->t, ATTN_ALLOWED, b, h, i);
        const void *s = row_of(run->t, ATTN_S, b, h, i),
                   *m = row_of(run->t, ATTN_M, b, h, i);
        void *a = row_of(run->t, ATTN_A, b, h, i),
             *sm = row_of(run->t, ATTN_S_MASKED, b, h, i);
        double lse = -(double)INFINITY;
        size_t j0 = 0, j1 = 0;

        run->t->empty[row] = !attn_allowed_span(allow, p->d.T_kv, &j0, &j1);
        if (sm)
            kernel->masked(p->d.T_kv, s, m, allow, sm);
        if (!run->t->empty[row])
            lse = softmax_row(p, allow, j0, j1, s, m, sink, a);
        else if (!empty_row(p, b, h, i, a, err))
            return false;
        if (run->t->t[ATTN_LSE].p)
            kernel->set(run->t->t[ATTN_LSE].p, row, lse);
    }
    return true;
}
