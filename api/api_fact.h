/*
 * api_fact.h - numbers inside of sentences, for people to read.
 * Not here: numbers of tensors, which read back the same (api_number.h).
 * Start reading at api_fact_write.
 */
#ifndef API_FACT_H
#define API_FACT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { API_FACT_MAX = 32 }; /* bytes of one, at most */

/* Whole numbers below 10^15 as they are, others with six digits as "%.6g" has them; names
   of non-finite values as in tensors.  Returns the length. */
size_t api_fact_write(char *out, double x);

#ifdef __cplusplus
}
#endif
#endif
