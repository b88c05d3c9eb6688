/*
 * attn_tensor.c - element types and addresses of dense row-major tensors.
 * Not here: which tensors exist and their shapes (attn_objects.c, attn_dims.c).
 * Start reading at attn_slice.
 */
#include "core/attn_core.h"

#include <assert.h>

static const struct {
    const char *name;
    size_t bytes;
} DTYPES[] = {
    [ATTN_F64] = {"float64", sizeof(double)},
    [ATTN_F32] = {"float32", sizeof(float)},
    [ATTN_BOOL] = {"bool", sizeof(uint8_t)},
};
_Static_assert(ATTN_COUNT(DTYPES) == ATTN_DTYPE_COUNT, "one row per dtype");

size_t attn_dtype_bytes(enum attn_dtype dtype)
{
    assert(dtype < ATTN_DTYPE_COUNT);
    return DTYPES[dtype].bytes;
}

const char *attn_dtype_name(enum attn_dtype dtype)
{
    assert(dtype < ATTN_DTYPE_COUNT);
    return DTYPES[dtype].name;
}

/* The number of elements; 1 for rank 0.  The product must fit, as attn_plan and the
   reader have checked. */
size_t attn_tensor_count(const struct attn_tensor *t)
{
    size_t count = 1;

    assert(t->rank <= ATTN_RANK_MAX);
    for (unsigned a = 0; a < t->rank; a++)
        count *= t->dim[a];
    return count;
}

double attn_tensor_get(const struct attn_tensor *t, size_t flat)
{
    assert(t->p != NULL);

    switch (t->dtype) {
    case ATTN_F64:
        return ((const double *)t->p)[flat];
    case ATTN_F32:
        return (double)((const float *)t->p)[flat];
    default:
        assert(t->dtype == ATTN_BOOL);
        return ((const uint8_t *)t->p)[flat] != 0 ? 1.0 : 0.0;
    }
}
