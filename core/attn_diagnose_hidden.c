/*
 * attn_diagnose_hidden.c - faults that this problem cannot show, and what would show
 * them. Not here: what is visible to whom: each row of the catalogue knows. Start reading
 * at attn_causes_hidden.
 */
#include "core/attn_diagnose_cause.h"

#include <math.h>
#include <string.h>

/* ---- what this input hides ---- */

static bool starts(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* A fault of an option that was not asked for is not hidden: it is out of the question.
 */
static bool in_question(const struct attn_problem *p, const char *name)
{
    static const struct {
        const char *begins, *rule;
    } RULES[] = {
        {"causal", "causal"},
        {"decode_sees", "causal"},
        {"chunk_mask", "causal"},
        {"padding", "padding"},
        {"packed_leak", "documents"},
        {"packed_boundary", "documents"},
        {"packed_not", "documents"},
        {"window", "window"},
        {"packed_positions", "documents"},
    };

    if (strcmp(name, "causal_not_asked") == 0)
        return !attn_mask_of(p, "causal");
    for (size_t n = 0; n < ATTN_COUNT(RULES); n++)
        if (starts(name, RULES[n].begins))
            return attn_mask_of(p, RULES[n].rule) != NULL;
    if (starts(name, "rope") || starts(name, "decode_position") ||
        starts(name, "decode_query") || starts(name, "chunk_position"))
        return p->rope.on;
    if (starts(name, "alibi"))
        return p->alibi != NULL;
    if (starts(name, "softcap"))
        return p->softcap > 0.0;
    if (starts(name, "sink"))
        return p->in[ATTN_IN_SINK].p != NULL;
    if (starts(name, "cache"))
        return p->d.T_past > 0;
    if (starts(name, "cross"))
        return p->form.source == ATTN_CROSS;
    if (starts(name, "mask") || starts(name, "fp16_mask") || starts(name, "bool_mask"))
        return p->mask_count > 0 || p->additive.p;
    return true;
}

/* Is something given at or after the object that a fault would spoil? */
static bool would_be_seen(const struct attn_inquiry *q,
                          const struct attn_fault_row *fault)
{
    if (attn_fault_back(fault)) {
        const int g = attn_gradient_find(fault->object);

        for (int n = g; q->back && g >= 0 && n < ATTN_GRADIENT_COUNT; n++)
            if (q->back->seen[n].given)
                return true;
        return false;
    }

    const enum attn_stage stage = attn_trial_first_stage(&fault->swap);

    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        if (q->base->seen[o].given && attn_walk_stage((enum attn_object)o) >= stage)
            return true;
    return false;
}

void attn_causes_hidden(const struct attn_inquiry *q)
{
    struct attn_report *report = q->report;

    for (size_t n = 0; n < attn_fault_count(); n++) {
        const struct attn_fault_row *fault = attn_fault_at(n);

        if (report->hidden == ATTN_COUNT(report->hidden_fault) ||
            !in_question(q->p, fault->name) || attn_fault_visible(fault, q->p) ||
            !would_be_seen(q, fault))
            continue;
        report->hidden_fault[report->hidden].fault = fault;
        report->hidden_fault[report->hidden++].needs = fault->visible_when;
    }
}
