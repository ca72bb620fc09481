from libc.stdint cimport intptr_t

ctypedef intptr_t intp_t

ctypedef fused real_t:
    float
    double
