/*
 * test_api_catalog.c - the catalog names every row of every table.
 * Not here: the tables' contents.
 * Start reading at the first test.
 */
#include <criterion/criterion.h>

#include "ask.h"

Test(api_catalog, every_table_is_there_in_full)
{
    struct asked a = ask_name(api_catalog, NULL);
    const struct {
        const char *path;
        size_t count;
    } want[] = {
        {"objects", ATTN_OBJECT_COUNT},
        {"gradients", ATTN_GRADIENT_COUNT},
        {"masks", attn_mask_count() + 1},
        {"scores", attn_score_count()},
        {"positions", attn_position_count()},
        {"empty_rows", ATTN_EMPTY_COUNT},
        {"checks", attn_check_count()},
        {"faults", attn_fault_count()},
        {"ablations.targets", attn_edit_target_count()},
        {"ablations.changes", attn_edit_change_count()},
        {"conventions", attn_convention_count()},
        {"inits", ATTN_INIT_COUNT},
        {"encodings", API_ENC_COUNT},
        {"paths", ATTN_PATH_COUNT},
    };

    cr_assert_eq(a.status, 200);
    cr_assert(a.json, "the catalog is not JSON");
    for (size_t n = 0; n < API_COUNT(want); n++) {
        cr_expect(want[n].count > 0);
        cr_expect_eq(json_array_size(ask_at(a.json, want[n].path)), want[n].count, "%s",
                     want[n].path);
    }
    cr_expect_str_eq(ask_text(a.json, "version"), API_VERSION);
    asked_free(&a);
}

Test(api_catalog, rows_hold_what_they_should)
{
    struct asked a = ask_name(api_catalog, NULL);

    cr_expect_str_eq(ask_text(a.json, "checks.0.id"), "shapes_input_and_projections");
    cr_expect_str_eq(ask_text(a.json, "masks.0.name"), attn_mask_at(0)->name);
    cr_expect_str_eq(ask_text(a.json, "faults.0.name"),
                     attn_fault_name(attn_fault_at(0)));
    cr_expect_eq(ask_number(a.json, "limits.queue_max.value"), ask_limits.queue_max);
    cr_expect_str_eq(ask_text(a.json, "limits.memory_max_bytes.unit"), "bytes");
    asked_free(&a);
}

Test(api_catalog, every_change_of_a_target_is_a_change)
{
    struct asked a = ask_name(api_catalog, NULL);
    const json_t *target;
    size_t n;

    json_array_foreach(ask_at(a.json, "ablations.targets"), n, target)
    {
        const json_t *name;
        size_t m;

        cr_expect(json_array_size(json_object_get(target, "changes")) > 0);
        json_array_foreach(json_object_get(target, "changes"), m, name)
            cr_expect(attn_edit_change_find(json_string_value(name)));
    }
    asked_free(&a);
}
