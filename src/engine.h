/* The register-blocked inner kernels of the tile engine.
 *
 * Points are packed into panels, feature by feature: `mr` landmarks side by
 * side for the rows of K, `nr` points side by side for its columns.  One call
 * of `kernel_panel` turns a tile of landmarks and one panel of points into a
 * panel of K that stays in the first-level cache, where `scatter_panel`
 * (sparse S_SG) or `gemm_panel` (dense S_SG) picks it up.
 *
 * The same code is compiled for several SIMD levels (engine.c) and one is
 * chosen at run time.  Data pointers are `void *`, so that float and double
 * share one table type.
 */
#ifndef PSK_ENGINE_H
#define PSK_ENGINE_H

#include <stdint.h>

enum psk_kernel {
    PSK_RBF,
    PSK_LAPLACIAN,
    PSK_MATERN12,
    PSK_MATERN32,
    PSK_MATERN52,
    PSK_POLYNOMIAL,
    PSK_LINEAR,
    PSK_SOBOLEV,
};

typedef struct {
    int kernel; /* enum psk_kernel */
    int degree; /* polynomial */
    double coef0;
    /* rbf, matern: squared norms above this lose too many digits in
     * |a|^2 + |b|^2 - 2ab; such tiles sum (a - b)^2 instead. */
    double direct_above;
    /* What points are multiplied by when they are packed, or whether they are
     * divided by their norm. */
    double factor;
    int normalised;
} psk_kernel_spec;

typedef struct {
    const char *name;
    int mr, nr;

    /* K_panel[r, c] = k(landmark r, point c), or what k is a function of if
     * `arguments_only`.
     * A (n_rows/mr, d, mr), a_norm (n_rows,), B (d, nr), b_norm (nr,),
     * K_panel (n_rows, nr); n_rows is a multiple of mr. */
    void (*kernel_panel)(const psk_kernel_spec *spec, int arguments_only,
                         intptr_t d, intptr_t n_rows, const void *A,
                         const void *a_norm, double a_norm_max, const void *B,
                         const void *b_norm, void *K_panel);

    /* K_panel of the kernel whose gamma is `ratio` times that of the points,
     * from their arguments, (n_rows, nr); kernels with a gamma only. */
    void (*value_panel)(const psk_kernel_spec *spec, double ratio,
                        intptr_t n_rows, const void *arguments, void *K_panel);

    /* slopes from arguments, both (n_rows, nr): the gradient of k(landmark, .) at
     * a point is its slope times the direction of `gradient_panel`. */
    void (*slope_panel)(const psk_kernel_spec *spec, intptr_t n_rows,
                        const void *arguments, void *slopes);

    /* total[k, c] += sum_r slopes[r, c] * direction(A[r, k], B[k, c]), total
     * (d, nr).  The direction is a - b for kernels of Euclidean distances, the
     * sign of it for the laplacian, a for kernels of scalar products, and 1
     * where b < a for the Sobolev kernel.  n_rows is any number. */
    void (*gradient_panel)(const psk_kernel_spec *spec, intptr_t d,
                           intptr_t n_rows, const void *A, const void *B,
                           const void *slopes, double *total);

    /* acc[row[e], :] += weight[e] * K_panel[landmark[e], :] */
    void (*scatter_panel)(intptr_t nnz, const int32_t *landmark,
                          const int32_t *row, const void *weight,
                          const void *K_panel, void *acc);

    /* acc[i, :] += sum_r W[i, r] * K_panel[r, :]
     * W (ceil(s/mr), depth, mr) padded with zeros, acc (s, nr). */
    void (*gemm_panel)(intptr_t s, intptr_t depth, const void *W,
                       const void *K_panel, void *acc);

    /* values = scale * (acc + total), all (nr,); total may be NULL. */
    void (*scale_panel)(double scale, const void *acc, const double *total,
                        void *values);

    /* out[r, c] = a[r] * b[c] * K_panel[r, c], rows of out `stride` apart;
     * n_cols is at most nr. */
    void (*weigh_panel)(intptr_t n_rows, intptr_t n_cols, const void *a,
                        const void *b, const void *K_panel, void *out,
                        intptr_t stride);

    /* y = 2^x for x <= 0, the exponential of the kernels on its own: for its
     * test and for the roofline.  n is a multiple of 6 * nr. */
    void (*exp2_buffer)(intptr_t n, const void *x, void *y);
} psk_engine;

/* The best level this processor runs, at most `max_level`: 0 baseline,
 * 1 AVX2 + FMA, 2 AVX-512. */
const psk_engine *psk_engine_for_double(int max_level);
const psk_engine *psk_engine_for_float(int max_level);

#endif
