/*
 * test_api_answer.c - shapes and tensors: which are listed, in which order, with which
 * axes. Not here: numbers (tests/http/). Start reading at the first test.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "ask.h"

/* "X Q K": the names of an object in the order in which they were written. */
static const char *order(const struct asked *a, const char *path)
{
    static char names[512];
    const char *key;
    json_t *value;

    names[0] = '\0';
    json_object_foreach((json_t *)(uintptr_t)ask_at(a->json, path), key, value)
    {
        if (names[0])
            strcat(names, " ");
        strcat(names, key);
    }
    return names;
}

static struct asked ask_return(const char *names)
{
    char body[512];

    snprintf(body, sizeof body,
             "{\"inputs\":{\"X\":[[1,0,1],[0,1,0.5]]},\"weights\":{\"W_Q\":[[1],[0],[1]],"
             "\"W_K\":[[0],[1],[0.5]],\"W_V\":[[1,2],[3,4],[-1,0.5]],"
             "\"W_O\":[[1,0,1],[0,1,0.5]]},\"return\":%s}",
             names);
    return ask(api_attention, body);
}

Test(api_answer, tensors_come_in_dependency_order)
{
    struct asked a = ask_return("[\"Y\",\"A\",\"Q\",\"allowed\",\"S\"]");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_str_eq(order(&a, "tensors"), "Q S allowed A Y");
    asked_free(&a);
}

Test(api_answer, shapes_are_the_layer_and_what_was_returned)
{
    struct asked a = ask_return("[\"lse\"]");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_str_eq(order(&a, "shapes"), "X Q K V S M A lse H Y");
    cr_expect_eq(ask_number(a.json, "shapes.V.1"), 2);
    cr_expect_eq(ask_number(a.json, "shapes.Y.1"), 3);
    cr_expect_eq(json_array_size(ask_at(a.json, "shapes.lse")), 1);
    asked_free(&a);
}

Test(api_answer, nothing_returned_is_an_empty_object)
{
    struct asked a = ask_return("\"none\"");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect(json_is_object(ask_at(a.json, "tensors")));
    cr_expect_str_eq(order(&a, "tensors"), "");
    asked_free(&a);
}
