/* Vectors of REAL at the current LEVEL: GCC's and clang's portable ones, so that one
 * source serves every architecture.  An operator on vectors works lane by lane, a
 * comparison gives an integer vector of all-ones and all-zeros lanes.
 *
 * Included by a body, which undefines `vec` and LANES at its end.
 */
#define LANES ((int)(VBYTES / sizeof(REAL)))
#define vec FN(vec)

typedef REAL vec __attribute__((vector_size(VBYTES)));

/* load, store: no alignment is asked for, only wished for */
INLINE vec FN(load)(const REAL *p)
{
    vec v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

INLINE void FN(store)(REAL *p, vec v)
{
    __builtin_memcpy(p, &v, sizeof v);
}

INLINE vec FN(spread)(REAL x)
{
    return x - (vec){0};
}
