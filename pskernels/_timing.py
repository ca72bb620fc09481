"""The time and the memory of a call."""

import time
import tracemalloc

REPEATS = 5


def fastest(function, *arguments, repeats=REPEATS, **options):
    """Time a call a few times: its result, and the least time, as noise only adds."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function(*arguments, **options)
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)


def peak_bytes(function, *arguments):
    """Measure the peak of memory that a call allocates, in a run that is not timed."""
    tracemalloc.start()
    try:
        function(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
