/*
 * test_api_answer_notes.c - notes are said where they belong and nowhere else.
 * Not here: warnings (tests of the request).
 * Start reading at the only test.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "ask.h"

static bool lists(const struct asked *a, const char *path, const char *begin)
{
    const json_t *note;
    size_t n;

    json_array_foreach(ask_at(a->json, path), n,
                       note) if (strncmp(json_string_value(note), begin, strlen(begin)) ==
                                 0) return true;
    return false;
}

Test(api_answer_rows, notes_say_what_was_not_asked)
{
    struct asked plain =
        ask(api_attention, "{\"inputs\":{\"Q\":[[0]],\"K\":[[1]],\"V\":[[1]]},"
                           "\"return\":[\"H\"]}");
    struct asked heads =
        ask(api_attention, "{\"shapes\":{\"heads\":2},\"inputs\":{\"Q\":[[1,2],[3,4]],"
                           "\"K\":[[1,2],[3,4]],\"V\":[[1,2],[3,4]]},"
                           "\"position\":{\"alibi\":{\"slopes\":\"standard\"}},"
                           "\"score\":{\"temperature\":2},"
                           "\"masks\":{\"documents\":{\"lengths\":[[1,1]]}}}");

    cr_expect(lists(&plain, "notes.not_in_this_layer", "position information"));
    cr_expect(lists(&plain, "notes.not_in_this_layer", "several heads"));
    cr_expect(lists(&plain, "notes.interpretation", "This layer is position-blind"));
    cr_expect_not(lists(&plain, "notes.interpretation", "Attention weights are not"));
    cr_expect_not(lists(&plain, "notes.interpretation", "A document that"));
    cr_expect_not(lists(&heads, "notes.not_in_this_layer", "several heads"));
    cr_expect(lists(&heads, "notes.interpretation", "Attention weights are not"));
    cr_expect(lists(&heads, "notes.interpretation", "A document that"));
    cr_expect(lists(&heads, "notes.interpretation", "Attention temperature"));
    cr_expect_not(lists(&plain, "notes.interpretation", "Attention temperature"));
    cr_expect_not(lists(&heads, "notes.not_in_this_layer", "position information"));
    cr_expect_not(lists(&heads, "notes.interpretation", "This layer is position-blind"));
    cr_expect(lists(&heads, "notes.not_in_this_layer", "residual update"));
    asked_free(&plain);
    asked_free(&heads);
}
