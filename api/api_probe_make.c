/*
 * api_probe_make.c - one problem of a probe: a request in words, read back as a problem,
 * its numbers rounded. Not here: which kinds there are (api_probe_rows.c). Start reading
 * at api_probe_make.
 */
#include <math.h>
#include <string.h>

#include "api/api_probe.h"

/* Draws of which the one that shows most is taken. */
enum { TRIES = 6, SEEDS_APART = 64 };
/* Scores spread over about 1 to 5: the standard deviation of S for inputs of deviation 1.
 */
static const double SCORE_SPREAD = 1.7;
/* Two decimals: short to write, and far coarser than any tolerance. */
static const double DECIMALS = 100.0;

/* ---- sizes ---- */

static size_t stated_or(size_t stated, size_t otherwise)
{
    return stated ? stated : otherwise;
}

static struct api_probe_sizes sizes_of(const struct api_probe_ask *ask,
                                       const struct api_probe_row *row)
{
    const struct attn_decl *d = &ask->sizes;
    struct api_probe_sizes z = row->sizes;

    z.B = stated_or(d->B, z.B);
    if (ask->causal_unaligned && d->T == 0 && d->T_kv == 0)
        z.T_q = z.T_kv;
    z.T_kv = stated_or(d->T_kv, stated_or(d->T, z.T_kv));
    z.T_q = stated_or(d->T, z.T_q);
    /* Keys before the queries come from a cache; fewer keys than queries cannot. */
    z.cross = z.cross || z.T_kv < z.T_q;
    z.d_model = stated_or(d->d_model, z.d_model);
    z.d_k = stated_or(d->d_k, z.d_k);
    if (ask->even_d_k && d->d_k == 0)
        z.d_k += z.d_k % 2;
    z.d_v = stated_or(d->d_v, z.d_v);
    z.h_kv = stated_or(d->kv_heads, d->heads ? d->heads : z.h_kv);
    z.h = stated_or(d->heads, z.h < z.h_kv || z.h % z.h_kv ? z.h_kv : z.h);
    return z;
}

/* ---- the request in words ---- */

static bool put_drawn(struct api_buffer *b, const char *name, uint64_t *seed, double std,
                      unsigned rank, const size_t *dim)
{
    const struct attn_tensor shape = {.rank = rank,
                                      .dim = {dim[0], rank > 1 ? dim[1] : 0,
                                              rank > 2 ? dim[2] : 0,
                                              rank > 3 ? dim[3] : 0}};

    return api_put_key(b, name) && api_puts(b, "{\"init\":\"normal\"") &&
           api_put_u64_member(b, "seed", ++*seed) &&
           api_put_double_member(b, "std", std) && api_put_key(b, "shape") &&
           api_put_shape(b, &shape) && api_puts(b, "}");
}

static bool put_inputs(struct api_buffer *b, const struct api_probe_sizes *z,
                       uint64_t *seed)
{
    const size_t X[] = {z->B, z->T_q, z->d_model}, X_kv[] = {z->B, z->T_kv, z->d_model};
    const size_t cached = z->cross ? 0 : z->T_kv - z->T_q;
    const size_t K[] = {z->B, z->h_kv, cached, z->d_k};
    const size_t V[] = {z->B, z->h_kv, cached, z->d_v};
    bool ok = api_put_key(b, "inputs") && api_puts(b, "{") &&
              put_drawn(b, "X", seed, 1.0, 3, X);

    if (z->cross)
        ok = ok && put_drawn(b, "X_kv", seed, 1.0, 3, X_kv);
    if (cached > 0)
        ok = ok && api_put_key(b, "past") && api_puts(b, "{") &&
             put_drawn(b, "K", seed, sqrt(SCORE_SPREAD), 4, K) &&
             put_drawn(b, "V", seed, 1.0, 4, V) && api_puts(b, "}");
    return ok && api_puts(b, "}");
}

static bool put_weights(struct api_buffer *b, const struct api_probe_sizes *z,
                        bool biases, uint64_t *seed)
{
    /* The spread of S is d_model std^2 sqrt(d_k) scale, with the default scale d_model
     * std^2. */
    const double score = sqrt(SCORE_SPREAD / (double)z->d_model);
    const double value = 1.0 / sqrt((double)z->d_model);
    const double out = 1.0 / sqrt((double)(z->h * z->d_v));
    const struct {
        const char *weight, *bias;
        size_t dim[2];
        double std;
    } w[] = {
        {"W_Q", "b_Q", {z->d_model, z->h * z->d_k}, score},
        {"W_K", "b_K", {z->d_model, z->h_kv * z->d_k}, score},
        {"W_V", "b_V", {z->d_model, z->h_kv * z->d_v}, value},
        {"W_O", "b_O", {z->h * z->d_v, z->d_model}, out},
    };
    bool ok = api_put_key(b, "weights") && api_puts(b, "{");

    for (size_t n = 0; n < API_COUNT(w) && ok; n++) {
        ok = put_drawn(b, w[n].weight, seed, w[n].std, 2, w[n].dim);
        if (biases)
            ok = ok && put_drawn(b, w[n].bias, seed, 0.5, 1, &w[n].dim[1]);
    }
    return ok && api_puts(b, "}");
}

static bool put_part(struct api_buffer *b, const char *name,
                     const struct api_buffer *stated, api_probe_part_fn *part,
                     const struct api_probe_sizes *z)
{
    if (stated->len > 0)
        return api_put_key(b, name) && api_put(b, stated->p, stated->len);
    return part == NULL ||
           (api_put_key(b, name) && api_puts(b, "{") && part(b, z) && api_puts(b, "}"));
}

static bool put_request(struct api_buffer *b, const struct api_probe_ask *ask,
                        const struct api_probe_row *row, uint64_t seed)
{
    const struct api_probe_sizes z = sizes_of(ask, row);
    const size_t Y[] = {z.B, z.T_q, z.d_model};
    bool ok = api_puts(b, "{\"return\":\"none\",\"audit\":\"off\",\"shapes\":{") &&
              api_put_u64_member(b, "heads", z.h) &&
              api_put_u64_member(b, "kv_heads", z.h_kv) &&
              api_put_u64_member(b, "d_k", z.d_k) &&
              api_put_u64_member(b, "d_v", z.d_v) && api_puts(b, "}") &&
              put_inputs(b, &z, &seed) &&
              put_weights(b, &z, row->with & API_WITH_BIASES, &seed) &&
              put_part(b, "masks", &ask->masks, row->masks, &z) &&
              put_part(b, "position", &ask->position, row->position, &z);

    if (ok && row->score)
        ok = api_put_key(b, "score") && api_puts(b, "{") && api_puts(b, row->score) &&
             api_puts(b, "}");
    if (ok && (row->with & API_WITH_SINK))
        ok = put_drawn(b, "sink", &seed, 1.0, 1, &z.h);
    if (ok && (row->with & API_WITH_GRADIENTS))
        ok = api_put_key(b, "gradients") && api_puts(b, "{\"of\":\"Y\"") &&
             put_drawn(b, "cotangent", &seed, 1.0, 3, Y) && api_puts(b, "}");
    return ok && api_puts(b, "}");
}

/* ---- numbers ---- */

static void round_numbers(struct attn_tensor *t)
{
    double *x = t->p;

    if (x == NULL)
        return;
    for (size_t n = 0; n < attn_tensor_count(t); n++)
        x[n] = round(x[n] * DECIMALS) / DECIMALS + 0.0;
}

void api_probe_see(struct api_probe_problem *problem)
{
    for (size_t n = 0; n < attn_fault_count() && n < API_FAULTS_MAX; n++) {
        const struct attn_fault_row *fault = attn_fault_at(n);
        const bool backward = attn_gradient_find(attn_fault_object(fault)) >= 0;

        problem->shows[n] = (problem->r.has_gradients || !backward) &&
                            attn_fault_visible(fault, &problem->r.p);
    }
}

static size_t count_shown(const struct api_probe_problem *problem)
{
    size_t count = 0;

    for (size_t n = 0; n < API_FAULTS_MAX; n++)
        count += problem->shows[n];
    return count;
}

static bool draw(struct api_ctx *ctx, const struct api_probe_ask *ask,
                 const struct api_probe_row *row, uint64_t seed,
                 struct api_probe_problem *out, struct api_err *err)
{
    struct api_buffer text = {0};
    bool ok = put_request(&text, ask, row, seed) || api_fail_buffer(err);

    *out = (struct api_probe_problem){.name = row->name, .says = row->says};
    ok = ok && api_request_read(ctx, text.p, text.len, &out->r, err);
    api_buffer_free(&text);
    if (!ok)
        return false;
    for (int k = 0; k < ATTN_INPUT_COUNT; k++)
        round_numbers(&out->r.p.in[k]);
    round_numbers(&out->r.gradients.cotangent);
    api_probe_see(out);
    return true;
}

bool api_probe_make(struct api_ctx *ctx, const struct api_probe_ask *ask,
                    const struct api_probe_row *row, struct api_probe_problem *out,
                    struct api_err *err)
{
    const uint64_t first = ask->seed * TRIES * SEEDS_APART;
    const size_t mark = attn_arena_mark(&ctx->arena);
    uint64_t best = first;
    size_t most = 0;

    for (uint64_t n = 0; n < TRIES; n++) {
        const uint64_t seed = first + n * SEEDS_APART;
        size_t shown;

        if (!draw(ctx, ask, row, seed, out, err))
            return false;
        shown = count_shown(out);
        if (shown > most) {
            most = shown;
            best = seed;
        }
        attn_arena_release(&ctx->arena, mark);
    }
    return draw(ctx, ask, row, best, out, err);
}
