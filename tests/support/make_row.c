/*
 * make_row.c - a random row of scores, as the inner loops get them.
 * Not here: whole problems (make_problem.c).
 * Start reading at make_row.
 */
#include "make_row.h"

struct row make_row(struct made *m, size_t allowed_of_4)
{
    struct row r;

    for (size_t j = 0; j < ROW_KEYS; j++) {
        r.s[j] = 3 * make_normal(m);
        r.m[j] = make_normal(m);
        r.allow[j] = make_below(m, 4) < allowed_of_4;
    }
    r.allow[make_below(m, ROW_KEYS)] = 1;
    return r;
}
