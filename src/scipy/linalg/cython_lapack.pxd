# What is called of SciPy's LAPACK; cython_blas.pxd says why it is declared here.

ctypedef double d
ctypedef float s

cdef void dpotrf(char *uplo, int *n, d *a, int *lda, int *info) noexcept nogil
cdef void spotrf(char *uplo, int *n, s *a, int *lda, int *info) noexcept nogil
