/* test_api_request_masks.c - every rule through the door: forms, tables, groups,
   conventions. */
#include "read_body.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct attn_mask *mask(const struct read *read, const char *name)
{
    const struct attn_mask *m = attn_mask_of(&read->r.p, name);

    cr_assert(m != NULL, "no rule %s", name);
    return m;
}

/* The first given table of a rule. */
static const void *table(const struct read *read, const char *name)
{
    const struct attn_mask *m = mask(read, name);

    for (size_t n = 0; n < ATTN_PARAMS_MAX; n++)
        if (m->arg[n].table.p != NULL)
            return m->arg[n].table.p;
    return NULL;
}

Test(api_request_masks, causal_is_a_switch_or_an_object)
{
    cr_expect(!mask(accepted("\"masks\":{\"causal\":true}"), "causal")->arg[0].given);
    cr_expect(accepted("\"masks\":{\"causal\":false}")->r.p.mask_count == 0);
    cr_expect(
        mask(accepted("\"masks\":{\"causal\":{\"alignment\":\"top_left\"}}"), "causal")
            ->arg[0]
            .number == ATTN_ALIGN_TOP_LEFT);
    cr_expect(mask(accepted("\"masks\":{\"causal\":{\"alignment\":\"bottom_right\"}}"),
                   "causal")
                  ->arg[0]
                  .number == ATTN_ALIGN_BOTTOM_RIGHT);
    refused("\"masks\":{\"causal\":1}", "wrong-type", "/masks/causal");
    refused("\"masks\":{\"causal\":null}", "wrong-type", "/masks/causal");
    refused("\"masks\":{\"causal\":{\"alignment\":\"left\"}}", "unknown-name",
            "/masks/causal/alignment");
}

Test(api_request_masks, alignment_must_be_stated_where_it_matters)
{
    const struct read *read =
        read_body("{\"inputs\":{\"Q\":[[1],[2]],\"K\":[[1],[2],[3]],\"V\":[[1],[2],[3]]},"
                  "\"masks\":{\"causal\":true}}");

    cr_assert(!read->ok);
    cr_expect_str_eq(read->err.name, "ambiguous-alignment");
    cr_expect(strstr(read->err.detail, "2") != NULL &&
              strstr(read->err.detail, "3") != NULL);
}

Test(api_request_masks, padding_by_lengths_or_by_booleans)
{
    cr_expect(*(const int64_t *)table(
                  accepted("\"masks\":{\"padding\":{\"lengths\":[1]}}"), "padding") == 1);
    cr_expect(memcmp(table(accepted("\"masks\":{\"padding\":{\"valid\":[false,true]}}"),
                           "padding"),
                     (uint8_t[]){0, 1}, 2) == 0);
    accepted("\"masks\":{\"padding\":{\"valid\":[[false,true]]}}");
    accepted("\"masks\":{\"padding\":{\"lengths\":[0]}}");
    refused("\"masks\":{\"padding\":{\"lengths\":[3]}}", "bad-value",
            "/masks/padding/lengths/0");
    refused("\"masks\":{\"padding\":{\"lengths\":[1.5]}}", "bad-value",
            "/masks/padding/lengths/0");
    refused("\"masks\":{\"padding\":{\"lengths\":[1,2]}}", "wrong-shape",
            "/masks/padding/lengths");
    refused("\"masks\":{\"padding\":{\"lengths\":[[1]]}}", "wrong-rank",
            "/masks/padding/lengths");
    refused("\"masks\":{\"padding\":{\"valid\":[1,0]}}", "wrong-type",
            "/masks/padding/valid/0");
    refused("\"masks\":{\"padding\":{\"valid\":[true]}}", "wrong-shape",
            "/masks/padding/valid");
    refused("\"masks\":{\"padding\":{}}", "missing", "/masks/padding");
    refused("\"masks\":{\"padding\":{\"lengths\":[1],\"valid\":[true,true]}}",
            "contradiction", "/masks/padding/lengths");
}

static const char PACKED[] =
    "{\"inputs\":{\"Q\":[[[1],[2],[3]],[[4],[5],[6]]],\"K\":[[[1],[2],[3]],[[4],[5],[6]]]"
    ","
    "\"V\":[[[1],[2],[3]],[[4],[5],[6]]]},\"masks\":{\"documents\":%s}}";

static const struct read *packed(const char *documents)
{
    static char body[1024];

    snprintf(body, sizeof body, PACKED, documents);
    return read_body(body);
}

static void gives_ids(const char *documents, const int64_t *want)
{
    const struct read *read = packed(documents);

    cr_assert(read->ok, "%s: %s at %s", documents, read->err.detail, read->err.pointer);
    cr_expect(memcmp(table(read, "documents"), want, 6 * sizeof *want) == 0, "%s",
              documents);
}

Test(api_request_masks, documents_in_every_form_are_ids)
{
    static const int64_t WANT[] = {0, 0, 1, 0, 1, 2};

    gives_ids("{\"ids\":[[0,0,1],[0,1,2]]}", WANT);
    gives_ids("{\"lengths\":[[2,1],[1,1,1]]}", WANT);
    gives_ids("{\"cu_seqlens\":[[0,2,3],[0,1,2,3]]}", WANT);
    gives_ids("{\"ids\":[[-1,7,-1],[5,5,5]]}", (int64_t[]){-1, 7, -1, 5, 5, 5});
}

Test(api_request_masks, documents_that_do_not_fit_are_refused)
{
    static const struct {
        const char *documents, *name, *pointer;
    } ROWS[] = {
        {"{\"lengths\":[[2,1],[1,1]]}", "wrong-shape", "/masks/documents/lengths/1"},
        {"{\"lengths\":[[2,2],[3]]}", "wrong-shape", "/masks/documents/lengths/0"},
        {"{\"lengths\":[[3]]}", "wrong-shape", "/masks/documents/lengths"},
        {"{\"lengths\":[1,2]}", "wrong-rank", "/masks/documents/lengths/0"},
        {"{\"lengths\":[[-1,4],[3]]}", "bad-value", "/masks/documents/lengths/0/0"},
        {"{\"cu_seqlens\":[[0,3],[1,3]]}", "bad-value",
         "/masks/documents/cu_seqlens/1/0"},
        {"{\"cu_seqlens\":[[0,3],[0,2,1,3]]}", "bad-value",
         "/masks/documents/cu_seqlens/1/2"},
        {"{\"cu_seqlens\":[[0,3],[0,2]]}", "wrong-shape",
         "/masks/documents/cu_seqlens/1"},
        {"{\"ids\":[[0,0,1],[0,1,-2]]}", "bad-value", "/masks/documents/ids/1/2"},
        {"{\"ids\":[[0,0,1],[0,1,0.5]]}", "bad-value", "/masks/documents/ids/1/2"},
        {"{\"ids\":[0,0,1]}", "wrong-rank", "/masks/documents/ids"},
        {"{\"next_id\":[1,2]}", "missing", "/masks/documents"},
        {"{\"ids\":[[0,0,1],[0,1,2]],\"next_id\":[1]}", "wrong-shape",
         "/masks/documents/next_id"},
    };

    for (size_t n = 0; n < API_COUNT(ROWS); n++) {
        const struct read *read = packed(ROWS[n].documents);

        cr_assert(!read->ok, "%s was taken", ROWS[n].documents);
        cr_expect(strcmp(read->err.name, ROWS[n].name) == 0, "%s: %s", ROWS[n].documents,
                  read->err.name);
        cr_expect(strcmp(read->err.pointer, ROWS[n].pointer) == 0, "%s: %s",
                  ROWS[n].documents, read->err.pointer);
    }
}

Test(api_request_masks, one_sequence_takes_flat_lists_and_a_next_document)
{
    static const int64_t WANT[] = {0, 1};
    const struct read *read;

    read = accepted("\"masks\":{\"documents\":{\"lengths\":[1,1],\"next_id\":[1]}}");
    cr_expect(memcmp(table(read, "documents"), WANT, sizeof WANT) == 0);
    cr_expect(read->r.next_id != NULL && read->r.next_id[0] == 1);
    accepted("\"masks\":{\"documents\":{\"lengths\":[[1,1]]}}");
    accepted("\"masks\":{\"documents\":{\"cu_seqlens\":[0,1,2]}}");
    accepted("\"masks\":{\"documents\":{\"ids\":[0,1]}}");
}

Test(api_request_masks, windows_have_two_sides)
{
    const struct attn_mask *m =
        mask(accepted("\"masks\":{\"window\":{\"left\":1,\"right\":-1}}"), "window");

    cr_expect(m->arg[0].number == 1 && m->arg[1].number == -1);
    cr_expect(
        !mask(accepted("\"masks\":{\"window\":{\"left\":0}}"), "window")->arg[1].given);
    refused("\"masks\":{\"window\":{}}", "missing", "/masks/window");
    refused("\"masks\":{\"window\":{\"left\":-2,\"right\":0}}", "bad-value",
            "/masks/window/left");
    refused("\"masks\":{\"window\":{\"left\":1,\"rigth\":0}}", "unknown-field",
            "/masks/window/rigth");
}

Test(api_request_masks, pairs_in_three_ranks_have_their_strides)
{
    static const struct {
        const char *tensor;
        size_t b, h, i;
    } ROWS[] = {
        {"[[true,false],[true,true]]", 0, 0, 2},
        {"[[[true,false],[true,true]]]", 4, 0, 2},
        {"[[[[true,false],[true,true]],[[true,true],[false,true]]]]", 8, 4, 2},
    };
    char members[256];

    for (size_t n = 0; n < API_COUNT(ROWS); n++) {
        const struct attn_table *t;

        snprintf(members, sizeof members,
                 "\"shapes\":{\"heads\":2},\"masks\":{\"allowed\":%s}", ROWS[n].tensor);
        t = &mask(accepted(members), "allowed")->arg[0].table;
        cr_expect(t->stride_b == ROWS[n].b && t->stride_h == ROWS[n].h &&
                      t->stride_i == ROWS[n].i,
                  "rank %zu", n + 2);
        cr_expect(((const uint8_t *)t->p)[1] == 0 && ((const uint8_t *)t->p)[2] == 1);
    }
    refused("\"masks\":{\"allowed\":[[true],[true]]}", "wrong-shape", "/masks/allowed");
    refused("\"masks\":{\"allowed\":[true,true]}", "wrong-rank", "/masks/allowed");
    refused("\"masks\":{\"blocked\":[[1,0],[0,1]]}", "wrong-type", "/masks/blocked/0/0");
}

Test(api_request_masks, additive_takes_minus_infinity_and_warns_of_booleans)
{
    const struct read *read =
        accepted("\"masks\":{\"additive\":[[0,\"-Infinity\"],[0.5,1]]}");

    cr_expect(((const double *)read->r.p.additive.p)[1] == -INFINITY);
    cr_expect(read->r.warnings == 0 && read->r.p.mask_count == 0);
    cr_expect(accepted("\"masks\":{\"additive\":[[0,1],[1,0]]}")->r.warnings == 1);
    cr_expect(accepted("\"dtype\":\"float32\",\"masks\":{\"additive\":[[0,2],[1,0]]}")
                  ->r.p.additive.elem == ATTN_ELEM_F64);
    refused("\"masks\":{\"additive\":[[0,\"Infinity\"],[0,0]]}", "not-finite",
            "/masks/additive/0/1");
    refused("\"masks\":{\"additive\":[[0,\"NaN\"],[0,0]]}", "not-finite",
            "/masks/additive/0/1");
    refused("\"masks\":{\"additive\":[[true,false],[true,true]]}", "wrong-type",
            "/masks/additive/0/0");
}

Test(api_request_masks, a_convention_sets_only_what_is_open_and_says_so)
{
    const struct read *read =
        accepted("\"masks\":{\"causal\":true,\"convention\":\"torch.mha\"}");

    cr_expect(mask(read, "causal")->arg[0].number == ATTN_ALIGN_TOP_LEFT);
    cr_expect(read->r.p.empty_rows == ATTN_EMPTY_NAN && read->r.set_count == 2);
    cr_expect_str_eq(read->r.set_by_convention[0].field, "masks.causal.alignment");
    cr_expect_str_eq(read->r.set_by_convention[0].value, "top_left");
    cr_expect_str_eq(read->r.set_by_convention[1].field, "empty_rows");
    read = accepted("\"empty_rows\":\"zero\",\"masks\":{\"convention\":\"torch.mha\","
                    "\"causal\":{\"alignment\":\"bottom_right\"}}");
    cr_expect(mask(read, "causal")->arg[0].number == ATTN_ALIGN_BOTTOM_RIGHT);
    cr_expect(read->r.p.empty_rows == ATTN_EMPTY_ZERO && read->r.set_count == 0);
    cr_expect(accepted("\"masks\":{\"convention\":\"flash_attn\"}")->r.set_count == 1);
    refused("\"masks\":{\"convention\":\"torch.sdp\"}", "unknown-name",
            "/masks/convention");
}

/* A new rule in core needs no code here: each one can be given in the form its row
   declares. */
Test(api_request_masks, every_rule_of_core_is_known_here)
{
    for (size_t n = 0; n < attn_mask_count(); n++) {
        char members[128], pointer[64];

        snprintf(members, sizeof members, "\"masks\":{\"%s\":\"no\"}",
                 attn_mask_at(n)->name);
        snprintf(pointer, sizeof pointer, "/masks/%s", attn_mask_at(n)->name);
        refused(members, "wrong-type", pointer);
    }
}
