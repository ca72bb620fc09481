from _types cimport intp_t

cdef extern from "blocks.h" nogil:
    enum:
        PSK_BLOCK
        PSK_DEPTH
        PSK_EVEN
    ctypedef struct psk_product:
        intp_t depth
        intp_t height
        intp_t width
        double scale
        int adds
        int upper
        intp_t reach
    ctypedef struct psk_blocks:
        int panel
        void (*pack)(intp_t depth, intp_t width, const intp_t *rows,
                     const double *weight, const void *source, intp_t stride,
                     void *out) noexcept nogil
        void (*pack_floats)(intp_t depth, intp_t width, const intp_t *rows,
                            const double *weight, const void *source, intp_t stride,
                            void *out) noexcept nogil
        void (*pack_transpose)(intp_t depth, intp_t width, const void *source,
                               intp_t stride, void *out) noexcept nogil
        void (*multiply)(const psk_product *product, const void *left,
                         const void *right, void *out, intp_t stride) noexcept nogil
    const psk_blocks *psk_blocks_for_double(int max_level)
    const psk_blocks *psk_blocks_for_float(int max_level)
