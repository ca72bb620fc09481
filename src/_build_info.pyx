"""What this build was compiled with, and OpenMP's own limit on threads."""

cdef extern from *:
    """
    #ifdef _OPENMP
    #include <omp.h>
    #define PSK_OPENMP _OPENMP
    #else
    #define PSK_OPENMP 0
    static int omp_get_max_threads(void) { return 1; }
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
    const int PSK_DEBUG
    const char *PSK_COMPILER
    int omp_get_max_threads() nogil

OPENMP = PSK_OPENMP    # yyyymm of the OpenMP standard, 0 without OpenMP
DEBUG = bool(PSK_DEBUG)    # bounds checks
COMPILER = PSK_COMPILER.decode()


def openmp_max_threads():
    """Count threads that OpenMP would use in the calling thread, 1 without OpenMP."""
    return omp_get_max_threads()
