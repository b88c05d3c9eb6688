/*
 * api_mistake_number.c - why some characters are no number of JSON, and which was meant.
 * Not here: where they stand (api_mistake.c), the grammar itself (api_number.cc).
 * Start reading at api_mistake_number.
 */
#include "api/api_private.h"
#include "api/api_mistake.h"

#include <string.h>

static const char AT_MOST[] = "a number has one sign, one point and one exponent at most";

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_one_of(char c, const char *these)
{
    return c != '\0' && strchr(these, c) != NULL;
}

/* The number is written again as it should be, and what had to be changed is blamed. */
struct mending {
    const char *p, *end;
    char *out;
    const char *why; /* the first thing that is wrong */
};

static void blame(struct mending *m, const char *why)
{
    if (m->why == NULL)
        m->why = why;
}

static size_t mend_digits(struct mending *m)
{
    const char *const first = m->out;

    for (; m->p < m->end && (is_digit(*m->p) || *m->p == '_'); m->p++) {
        if (*m->p == '_')
            blame(m, "no _ stands between digits");
        else
            *m->out++ = *m->p;
    }
    return (size_t)(m->out - first);
}

static void mend_sign(struct mending *m)
{
    if (m->p < m->end && *m->p == '+') {
        blame(m, "a number has no plus sign");
        m->p++;
    } else if (m->p < m->end && *m->p == '-') {
        *m->out++ = *m->p++;
    }
}

static void mend_whole(struct mending *m)
{
    char *const first = m->out;
    size_t zeros = 0;
    const size_t digits = mend_digits(m);

    while (zeros + 1 < digits && first[zeros] == '0')
        zeros++;
    if (zeros > 0) {
        blame(m, "no digit stands behind a leading 0");
        memmove(first, first + zeros, digits - zeros);
        m->out -= zeros;
    }
    if (digits > 0)
        return;
    blame(m, m->p < m->end && *m->p == '.' ? "a digit must stand before the point"
                                           : "a digit must stand behind the sign");
    *m->out++ = '0';
}

static void mend_fraction(struct mending *m)
{
    if (m->p == m->end || *m->p != '.')
        return;
    *m->out++ = *m->p++;
    if (mend_digits(m) > 0)
        return;
    blame(m, "a digit must stand behind the point");
    *m->out++ = '0';
}

static bool mend_power(struct mending *m)
{
    if (m->p == m->end || !is_one_of(*m->p, "eE"))
        return true;
    *m->out++ = *m->p++;
    if (m->p < m->end && is_one_of(*m->p, "+-"))
        *m->out++ = *m->p++;
    if (mend_digits(m) > 0)
        return true;
    blame(m, "a digit must stand behind the e");
    return false;
}

const char *api_mistake_number(const char *p, size_t len,
                               char meant[API_MISTAKE_NUMBER_MAX + 4])
{
    const size_t shown = len < API_MISTAKE_NUMBER_MAX ? len : API_MISTAKE_NUMBER_MAX;
    struct mending m = {.p = p, .end = p + shown, .out = meant};
    bool whole;

    mend_sign(&m);
    if (m.end - m.p > 1 && *m.p == '0' && is_one_of(m.p[1], "xXoObB"))
        return meant[0] = '\0', "a number is decimal";
    if (m.p == m.end || !(is_digit(*m.p) || *m.p == '.'))
        return meant[0] = '\0', "a digit must stand behind the sign";
    mend_whole(&m);
    mend_fraction(&m);
    whole = mend_power(&m) && len == shown;
    if (m.end - m.p == 1 && is_one_of(*m.p, "fFdDlLn")) {
        blame(&m, "no letter stands behind a number");
        m.p++;
    }
    *m.out = '\0';
    if (!whole || m.p < m.end)
        meant[0] = '\0';
    return m.why != NULL ? m.why : AT_MOST;
}
