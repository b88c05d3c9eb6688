/*
 * make_row.h - a random row of scores, as the inner loops get them.
 * Not here: whole problems (make_problem.h).
 * Start reading at make_row.
 */
#ifndef MAKE_ROW_H
#define MAKE_ROW_H

#include "make_problem.h"

enum { ROW_KEYS = 37 }; /* more than two registers of any width, and a rest */

struct row {
    double s[ROW_KEYS], m[ROW_KEYS], a[ROW_KEYS];
    uint8_t allow[ROW_KEYS];
};

/* About so many keys of four are allowed, one at least. */
struct row make_row(struct made *m, size_t allowed_of_4);

#endif
