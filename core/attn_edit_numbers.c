/*
 * attn_edit_numbers.c - the changes that an ablation makes to a block of numbers.
 * Not here: which block (attn_edit_apply.c), the table of changes (attn_edit.c).
 * Start reading at attn_change_zero; each function is the `numbers` of a CHANGES row.
 */
#include "core/attn_edit.h"

#include <assert.h>

static void *place(struct attn_mat m, size_t r, size_t c)
{
    return (unsigned char *)m.p + (r * m.ld + c) * attn_dtype_bytes(m.dtype);
}

static double get(struct attn_mat m, size_t r, size_t c)
{
    return m.dtype == ATTN_F64 ? *(double *)place(m, r, c)
                               : (double)*(float *)place(m, r, c);
}

static void set(struct attn_mat m, size_t r, size_t c, double x)
{
    if (m.dtype == ATTN_F64)
        *(double *)place(m, r, c) = x;
    else
        *(float *)place(m, r, c) = (float)x;
}

static void multiply(struct attn_mat m, double by)
{
    for (size_t r = 0; r < m.rows; r++)
        for (size_t c = 0; c < m.cols; c++)
            set(m, r, c, get(m, r, c) * by);
}

void attn_change_zero(struct attn_mat m, struct attn_mat from,
                      const struct attn_edit *edit, struct attn_tensor *noise)
{
    (void)from, (void)edit, (void)noise;
    for (size_t r = 0; r < m.rows; r++)
        for (size_t c = 0; c < m.cols; c++)
            set(m, r, c, 0.0);
}

void attn_change_identity(struct attn_mat m, struct attn_mat from,
                          const struct attn_edit *edit, struct attn_tensor *noise)
{
    assert(m.rows == m.cols);
    (void)from, (void)edit, (void)noise;
    for (size_t r = 0; r < m.rows; r++)
        for (size_t c = 0; c < m.cols; c++)
            set(m, r, c, r == c ? 1.0 : 0.0);
}

void attn_change_negate(struct attn_mat m, struct attn_mat from,
                        const struct attn_edit *edit, struct attn_tensor *noise)
{
    (void)from, (void)edit, (void)noise;
    multiply(m, -1.0);
}

void attn_change_scale(struct attn_mat m, struct attn_mat from,
                       const struct attn_edit *edit, struct attn_tensor *noise)
{
    (void)from, (void)noise;
    multiply(m, edit->by);
}

/* Adds independent normal numbers of mean 0 and deviation std (attn_init_fill says
   which). */
void attn_change_noise(struct attn_mat m, struct attn_mat from,
                       const struct attn_edit *edit, struct attn_tensor *noise)
{
    (void)from;
    assert(noise->p != NULL);
    noise->dtype = m.dtype;
    noise->rank = 2;
    noise->dim[0] = m.rows;
    noise->dim[1] = m.cols;

    const bool filled = attn_init_fill(ATTN_INIT_NORMAL, edit->seed, edit->std, noise);

    assert(filled);
    (void)filled;
    for (size_t r = 0; r < m.rows; r++)
        for (size_t c = 0; c < m.cols; c++)
            set(m, r, c, get(m, r, c) + attn_tensor_get(noise, r * m.cols + c));
}

/* The same numbers in another order, each order as likely (Fisher and Yates). */
void attn_change_shuffle(struct attn_mat m, struct attn_mat from,
                         const struct attn_edit *edit, struct attn_tensor *noise)
{
    uint64_t state = edit->seed;

    (void)from, (void)noise;
    for (size_t n = m.rows * m.cols; n > 1; n--) {
        const size_t a = n - 1, z = attn_random_below(&state, n);
        const double last = get(m, a / m.cols, a % m.cols);

        set(m, a / m.cols, a % m.cols, get(m, z / m.cols, z % m.cols));
        set(m, z / m.cols, z % m.cols, last);
    }
}

void attn_change_replace(struct attn_mat m, struct attn_mat from,
                         const struct attn_edit *edit, struct attn_tensor *noise)
{
    (void)from, (void)noise;
    assert(attn_tensor_count(&edit->with) == m.rows * m.cols);
    for (size_t r = 0; r < m.rows; r++)
        for (size_t c = 0; c < m.cols; c++)
            set(m, r, c, attn_tensor_get(&edit->with, r * m.cols + c));
}

/* Every row becomes the mean of from's rows. */
void attn_change_mean(struct attn_mat m, struct attn_mat from,
                      const struct attn_edit *edit, struct attn_tensor *noise)
{
    (void)edit, (void)noise;
    assert(from.cols == m.cols);
    for (size_t c = 0; c < m.cols; c++) {
        double sum = 0.0;

        for (size_t r = 0; r < from.rows; r++)
            sum += get(from, r, c);
        for (size_t r = 0; r < m.rows; r++)
            set(m, r, c, sum / (double)from.rows);
    }
}
