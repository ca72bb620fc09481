"""The time and the memory of a call."""

import time
import tracemalloc

REPEATS = 5


def fastest(function, *arguments, repeats=REPEATS, **options):
    """The result of a call, and the least time of a few: noise only adds."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function(*arguments, **options)
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)


def peak_bytes(function, *arguments):
    """Peak of the memory that a call allocates, in a run that is not timed."""
    tracemalloc.start()
    try:
        function(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
