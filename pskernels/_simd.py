"""The SIMD level that compiled code uses at most: PSKERNELS_SIMD, or all there is.

Every extension module asks for it when it is loaded.
"""

import os

from pskernels._validation import check_option

LEVELS = ("baseline", "avx2", "avx512")

MAX_LEVEL = LEVELS.index(
    check_option(os.environ.get("PSKERNELS_SIMD", LEVELS[-1]), "PSKERNELS_SIMD", LEVELS)
)
