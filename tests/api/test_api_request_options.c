/* test_api_request_options.c - choices, what is returned, score and position. */
#include "read_body.h"

#include <criterion/criterion.h>
#include <string.h>

Test(api_request_options, choices_are_read_and_typing_errors_refused)
{
    cr_expect(accepted("\"dtype\":\"float32\"")->r.p.dtype == ATTN_F32);
    cr_expect(accepted("\"empty_rows\":\"uniform\"")->r.p.empty_rows ==
              ATTN_EMPTY_UNIFORM);
    cr_expect(accepted("\"audit\":\"off\"")->r.audit == ATTN_AUDIT_OFF);
    cr_expect(accepted("\"path\":\"dense\"")->r.path == ATTN_PATH_DENSE);
    cr_expect(accepted("\"encoding\":\"flat\"")->r.encoding == API_ENC_FLAT);
    refused("\"dtype\":\"float16\"", "unknown-name", "/dtype");
    refused("\"dtype\":64", "wrong-type", "/dtype");
    refused("\"empty_rows\":\"none\"", "unknown-name", "/empty_rows");
    refused("\"audit\":true", "wrong-type", "/audit");
    refused("\"path\":\"fast\"", "unknown-name", "/path");
    refused("\"encoding\":\"b64\"", "unknown-name", "/encoding");
    refused("\"inject\":\"no_such_fault\"", "unknown-name", "/inject");
    refused("\"inject\":1", "wrong-type", "/inject");
}

Test(api_request_options, return_names_what_exists)
{
    const struct read *read;

    cr_expect(accepted("\"return\":[\"S_raw\",\"Q\",\"Q\"]")->r.want ==
              (ATTN_BIT(ATTN_S_RAW) | ATTN_BIT(ATTN_Q)));
    cr_expect(accepted("\"return\":\"none\"")->r.want == 0);
    cr_expect(accepted("\"return\":[]")->r.want == 0);
    read = accepted("\"return\":\"all\"");
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        cr_expect(((read->r.want & ATTN_BIT(o)) != 0) == ATTN_OBJECTS[o].returnable, "%s",
                  ATTN_OBJECTS[o].name);
    refused("\"return\":\"al\"", "unknown-name", "/return");
    refused("\"return\":[\"Q\",\"q\"]", "unknown-name", "/return/1");
    refused("\"return\":[\"X\"]", "unknown-name", "/return/0");
    refused("\"return\":[3]", "wrong-type", "/return/0");
    refused("\"return\":true", "wrong-type", "/return");
}

Test(api_request_options, without_an_output_projection_there_is_no_Y)
{
    const struct read *read =
        read_body("{\"inputs\":{\"Q\":[[1]],\"K\":[[1]],\"V\":[[1]]}}");

    cr_assert(read->ok);
    cr_expect((read->r.want & ATTN_BIT(ATTN_Y)) == 0 &&
              (read->r.want & ATTN_BIT(ATTN_H)) != 0);
    read = read_body(
        "{\"inputs\":{\"Q\":[[1]],\"K\":[[1]],\"V\":[[1]]},\"return\":[\"Y\"]}");
    cr_assert(!read->ok);
    cr_expect_str_eq(read->err.pointer, "/return/0");
    cr_expect_str_eq(read->err.name, "contradiction");
}

Test(api_request_options, the_tiled_path_holds_no_pairs)
{
    const struct read *read = accepted("\"path\":\"tiled\"");

    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        cr_expect((read->r.want & ATTN_BIT(o)) == 0 || !ATTN_OBJECTS[o].pairwise, "%s",
                  ATTN_OBJECTS[o].name);
    cr_expect(read->r.warnings == 1);
    refused("\"path\":\"tiled\",\"return\":[\"S\"]", "contradiction", "/path");
    refused("\"path\":\"tiled\",\"gradients\":{}", "contradiction", "/path");
}

Test(api_request_options, score_functions_and_their_numbers)
{
    const struct read *read =
        accepted("\"score\":{\"function\":\"additive\",\"v_a\":[1,2],\"scale\":-0.5,"
                 "\"temperature\":2,\"softcap\":1.5}");

    cr_expect_str_eq(read->r.p.score->name, "additive");
    cr_expect(read->r.p.scale == -0.5 && read->r.p.scale_stated);
    cr_expect(read->r.p.temperature == 2.0 && read->r.p.softcap == 1.5);
    cr_expect(
        accepted("\"score\":{\"function\":\"additive\",\"v_a\":[1,2]}")->r.p.scale ==
        1.0);
    refused("\"score\":{\"function\":\"additive\"}", "missing", "/score/v_a");
    refused("\"score\":{\"v_a\":[1,2]}", "contradiction", "/score/v_a");
    refused("\"score\":{\"function\":\"additive\",\"v_a\":[1]}", "wrong-shape",
            "/score/v_a");
    refused("\"score\":{\"function\":\"dot\"}", "unknown-name", "/score/function");
    refused("\"score\":{\"temperature\":0}", "bad-value", "/score/temperature");
    refused("\"score\":{\"softcap\":-1}", "bad-value", "/score/softcap");
    refused("\"score\":{\"scale\":\"NaN\"}", "wrong-type", "/score/scale");
    refused("\"score\":{\"scale\":1e999}", "number-out-of-range", "/score/scale");
}

Test(api_request_options, rope_positions_for_all_or_for_each_item)
{
    const struct attn_problem *p =
        &accepted("\"position\":{\"rope\":{\"layout\":\"interleaved\",\"base\":100,"
                  "\"q\":[3,4],\"k\":[[5,6]]}}")
             ->r.p;
    const struct attn_table *q = &p->position[0].arg[2].table;
    const struct attn_table *k = &p->position[0].arg[3].table;

    cr_expect(p->rope.on && p->rope.layout == ATTN_ROPE_INTERLEAVED);
    cr_expect_eq(p->rope.base, 100.0);
    cr_expect(((const double *)q->p)[1] == 4.0 && q->stride_b == 0);
    cr_expect(((const double *)k->p)[1] == 6.0 && k->stride_b == 2);
    p = &accepted("\"position\":{\"rope\":{\"layout\":\"half\"}}")->r.p;
    cr_expect(p->rope.base == 10000.0);
    cr_expect(p->position[0].arg[2].table.p == NULL);
    cr_expect(p->position[0].arg[3].table.p == NULL);
    cr_expect(accepted("\"position\":{\"rope\":{}}")->r.warnings == 1);
    refused("\"position\":{\"rope\":{\"q\":[1,2,3]}}", "wrong-shape", "/position/rope/q");
    refused("\"position\":{\"rope\":{\"q\":[1,\"NaN\"]}}", "not-finite",
            "/position/rope/q/1");
    refused("\"position\":{\"rope\":{\"base\":0}}", "bad-value", "/position/rope/base");
    refused("\"position\":{\"rope\":true}", "wrong-type", "/position/rope");
    refused("\"position\":{\"rop\":{}}", "unknown-field", "/position/rop");
    refused("\"position\":{\"rope\":{\"slopes\":[1]}}", "unknown-field",
            "/position/rope/slopes");
    refused("\"shapes\":{\"heads\":2},\"position\":{\"rope\":{\"layout\":\"half\"}}",
            "bad-value", "/position/rope");
}

Test(api_request_options, alibi_slopes_are_a_list_or_standard)
{
    cr_expect(accepted("\"position\":{\"alibi\":{\"slopes\":[0.5]}}")->r.p.alibi[0] ==
              0.5);
    cr_expect(
        accepted("\"position\":{\"alibi\":{\"slopes\":\"standard\"}}")->r.p.alibi[0] ==
        0.00390625);
    refused("\"position\":{\"alibi\":{}}", "missing", "/position/alibi/slopes");
    refused("\"position\":{\"alibi\":{\"slopes\":[1,2]}}", "wrong-shape",
            "/position/alibi/slopes");
    refused("\"position\":{\"alibi\":{\"slopes\":\"std\"}}", "unknown-name",
            "/position/alibi/slopes");
}
