/* The inner kernels (engine_body.h), compiled for each SIMD level and type. */

#include "engine.h"

#include <math.h>

#define LOG2_E 1.44269504088896340736

#define LEVEL_BODY "engine_types.h"
#include "levels.h"

const psk_engine *psk_engine_for_double(int max_level)
{
    static const psk_engine *const engines[] = AT_LEVELS(engine_double);
    return engines[psk_level_at_most(max_level)];
}

const psk_engine *psk_engine_for_float(int max_level)
{
    static const psk_engine *const engines[] = AT_LEVELS(engine_float);
    return engines[psk_level_at_most(max_level)];
}
