"""Drawing sketches: time and peak memory."""

import subprocess
import sys

import pskernels as psk

DISTRIBUTIONS = {
    "p-SR": psk.PSparsified(200),
    "p-SG": psk.PSparsified(200, kind="gaussian"),
    "Accumulation": psk.Accumulation(200),
    "SubSampling": psk.SubSampling(200),
    "CountSketch": psk.CountSketch(200),
}


class Draw:
    params = [list(DISTRIBUTIONS), [10_000, 1_000_000]]
    param_names = ["sketch", "n"]

    def time_draw(self, sketch, n):
        DISTRIBUTIONS[sketch].draw(n, random_state=0)

    def peakmem_draw(self, sketch, n):
        DISTRIBUTIONS[sketch].draw(n, random_state=0)


class DrawDense:
    params = [["p-SR, p = 0.7", "Gaussian"]]
    param_names = ["sketch"]

    def setup(self, sketch):
        self.distribution = (
            psk.Gaussian(100) if sketch == "Gaussian" else psk.PSparsified(100, 0.7)
        )

    def time_draw(self, sketch):
        self.distribution.draw(10_000, random_state=0)


class Import:
    """Whole processes: `track_extra` is what pskernels adds to NumPy and SciPy."""

    unit = "s"

    def track_extra(self):
        code = (
            "import time, numpy, scipy.linalg; t = time.perf_counter();"
            "import pskernels; print(time.perf_counter() - t)"
        )
        times = [
            float(subprocess.check_output([sys.executable, "-P", "-c", code]))
            for _ in range(5)
        ]
        return min(times)
