/*
 * api_number.h - JSON numbers to and from binary floats, as api_number.cc does it.
 * Not here: anything else of api/ (api_private.h includes this).
 * Start reading at api_number_end.
 */
#ifndef API_NUMBER_H
#define API_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { API_NUMBER_MAX = 64 }; /* bytes that writing one number may touch */

/* Shortest decimal that reads back to the same float; returns its length.  Non-finite
   values are written with their quotes: "NaN", "Infinity", "-Infinity". */
size_t api_number_write_f64(char *out, double x);
size_t api_number_write_f32(char *out, float x);
/* `count` of them with commas between; returns where the text ends. */
char *api_number_run_f64(char *out, const double *x, size_t count);
char *api_number_run_f32(char *out, const float *x, size_t count);
/* The same, the way that is named: way < API_NUMBER_WAYS, best first; NULL where this
   machine cannot. */
enum { API_NUMBER_WAYS = 3 };
char *api_number_run_f32_way(size_t way, char *out, const float *x, size_t count);

/* Where the number that begins at p ends (grammar: RFC 8259 section 6, strictly); NULL
   when none begins there. */
const char *api_number_end(const char *p, const char *end);
/* Goes over numbers with commas and blanks between, from the first byte of a number to
   the first byte that is none of these (or the end): how many numbers stand there, and
   whether a comma stands last.  Where something in it is not JSON it returns NULL, or
   goes no further than there. */
const char *api_number_list_end(const char *p, const char *end, size_t *count,
                                bool *comma);

/* Reads one JSON number at *p; moves *p past it.  A number nearer to 0 than any float is
   0. */
enum api_number_result { API_NUMBER_OK, API_NUMBER_NOT_JSON, API_NUMBER_RANGE };
enum api_number_result api_number_read_f64(const char **p, const char *end, double *x);
enum api_number_result api_number_read_f32(const char **p, const char *end, float *x);
/* Reads the numbers of a text that is known to be JSON, over brackets, commas and blanks,
   until something else or a number out of range; moves *p there.  How many were read. */
size_t api_number_list_read_f64(const char **p, const char *end, double *x);
size_t api_number_list_read_f32(const char **p, const char *end, float *x);

#ifdef __cplusplus
}
#endif
#endif
