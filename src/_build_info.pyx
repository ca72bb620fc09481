"""What this build was compiled with."""

cdef extern from *:
    """
    #ifdef _OPENMP
    #include <omp.h>
    #define PSK_OPENMP _OPENMP
    #else
    #define PSK_OPENMP 0
    #endif
    #if defined(__clang__)
    #define PSK_COMPILER __VERSION__
    #elif defined(__GNUC__)
    #define PSK_COMPILER "GCC " __VERSION__
    #else
    #define PSK_COMPILER "unknown"
    #endif
    """
    const int PSK_OPENMP
    const char *PSK_COMPILER

OPENMP = PSK_OPENMP    # yyyymm of the OpenMP standard, 0 without OpenMP
COMPILER = PSK_COMPILER.decode()
