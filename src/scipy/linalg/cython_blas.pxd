# What is called of SciPy's BLAS: declared here, so that SciPy and NumPy need not be
# installed to build.  The functions come from the module of this name at run time,
# where Cython compares all types; names of types are a part of that.

ctypedef double d
ctypedef float s

cdef void dgemm(char *transa, char *transb, int *m, int *n, int *k, d *alpha, d *a,
                int *lda, d *b, int *ldb, d *beta, d *c, int *ldc) noexcept nogil
cdef void sgemm(char *transa, char *transb, int *m, int *n, int *k, s *alpha, s *a,
                int *lda, s *b, int *ldb, s *beta, s *c, int *ldc) noexcept nogil
cdef void dgemv(char *trans, int *m, int *n, d *alpha, d *a, int *lda, d *x,
                int *incx, d *beta, d *y, int *incy) noexcept nogil
cdef void dscal(int *n, d *da, d *dx, int *incx) noexcept nogil
cdef void dtrsm(char *side, char *uplo, char *transa, char *diag, int *m, int *n,
                d *alpha, d *a, int *lda, d *b, int *ldb) noexcept nogil
cdef void strsm(char *side, char *uplo, char *transa, char *diag, int *m, int *n,
                s *alpha, s *a, int *lda, s *b, int *ldb) noexcept nogil
