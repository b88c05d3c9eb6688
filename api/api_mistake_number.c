/*
 * api_mistake_number.c - why some characters are no number of JSON, and which was meant.
 * Not here: where they stand (api_mistake.c), the grammar itself (api_number.cc).
 * Start reading at api_mistake_number.
 */
#include "api/api_private.h"
#include "api/api_mistake.h"

#include <assert.h>
#include <string.h>

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
    char *out, *full; /* what does not fit is read all the same */
    bool power;       /* an exponent was read */
    const char *why;  /* the first thing that is wrong */
};

static void blame(struct mending *m, const char *why)
{
    if (m->why == NULL)
        m->why = why;
}

static void put(struct mending *m, char c)
{
    if (m->out < m->full)
        *m->out++ = c;
}

/* How many there are. */
static size_t mend_digits(struct mending *m)
{
    size_t digits = 0;

    for (; m->p < m->end && (is_digit(*m->p) || *m->p == '_'); m->p++) {
        if (*m->p == '_') {
            blame(m, "no _ stands between digits");
        } else {
            put(m, *m->p);
            digits++;
        }
    }
    return digits;
}

static void mend_sign(struct mending *m)
{
    if (m->p < m->end && *m->p == '+') {
        blame(m, "a number has no plus sign");
        m->p++;
    } else if (m->p < m->end && *m->p == '-') {
        put(m, *m->p++);
    }
}

static void mend_whole(struct mending *m)
{
    char *const first = m->out;
    size_t zeros = 0;
    const size_t digits = mend_digits(m), written = (size_t)(m->out - first);

    while (zeros + 1 < written && first[zeros] == '0')
        zeros++;
    if (zeros > 0) {
        blame(m, "no digit stands behind a leading 0");
        memmove(first, first + zeros, written - zeros);
        m->out -= zeros;
    }
    if (digits > 0)
        return;
    blame(m, "a digit must stand before the point");
    put(m, '0');
}

static void mend_fraction(struct mending *m)
{
    if (m->p == m->end || *m->p != '.')
        return;
    put(m, *m->p++);
    if (mend_digits(m) > 0)
        return;
    blame(m, "a digit must stand behind the point");
    put(m, '0');
}

static bool mend_power(struct mending *m)
{
    if (m->p == m->end || !is_one_of(*m->p, "eE"))
        return true;
    m->power = true;
    put(m, *m->p++);
    if (m->p < m->end && is_one_of(*m->p, "+-"))
        put(m, *m->p++);
    if (mend_digits(m) > 0)
        return true;
    blame(m, "a digit must stand behind the e");
    return false;
}

/* Why what is left behind a number does not belong to it. */
static const char *why_left(const struct mending *m)
{
    if (*m->p == '.')
        return m->power ? "an exponent is a whole number"
                        : "a number has one point at most";
    if (is_one_of(*m->p, "+-"))
        return "a sign stands before a number, or behind its e";
    return m->power && is_one_of(*m->p, "eE") ? "a number has one exponent at most"
                                              : "no letter stands behind a number";
}

const char *api_mistake_number(const char *p, size_t len,
                               char meant[API_MISTAKE_NUMBER_MAX + 4])
{
    struct mending m = {
        .p = p, .end = p + len, .out = meant, .full = meant + API_MISTAKE_NUMBER_MAX + 3};
    bool whole;

    mend_sign(&m);
    if (m.end - m.p > 1 && *m.p == '0' && is_one_of(m.p[1], "xXoObB"))
        return meant[0] = '\0', "a number is decimal";
    if (m.p == m.end || !(is_digit(*m.p) || *m.p == '.'))
        return meant[0] = '\0', "a digit must stand behind the sign";
    mend_whole(&m);
    mend_fraction(&m);
    whole = mend_power(&m) && len <= API_MISTAKE_NUMBER_MAX;
    if (m.p < m.end)
        blame(&m, why_left(&m));
    if (m.end - m.p == 1 && is_one_of(*m.p, "fFdDlLn"))
        m.p++;
    *m.out = '\0';
    if (!whole || m.p < m.end)
        meant[0] = '\0';
    assert(m.why != NULL);
    return m.why;
}
