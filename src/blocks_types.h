/* blocks_body.h for both floating types at the current SIMD level. */

#define REAL double
#include "blocks_body.h"
#undef REAL

#define REAL float
#include "blocks_body.h"
#undef REAL
