"""Progress of a long call: tqdm if it is installed, else a plain line."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PLAIN_LINE_EVERY = 1.0  # seconds


@contextmanager
def progress(
    total: float, label: str, verbose: int
) -> Iterator[Callable[[float], object]]:
    """Yield a function that is told how much was done; `total` is all of it."""
    if not verbose:
        yield lambda done: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield _plain_line(total, label)
        sys.stderr.write("\n")
        return
    with tqdm(total=total, desc=label, unit_scale=True) as bar:
        yield bar.update


def _plain_line(total: float, label: str) -> Callable[[float], None]:
    start = last = time.monotonic()
    done = 0.0

    def update(amount: float) -> None:
        nonlocal done, last
        done += amount
        now = time.monotonic()
        if now - last >= PLAIN_LINE_EVERY or done >= total:
            last = now
            seconds = now - start
            sys.stderr.write(f"\r{label}: {done / total:4.0%} after {seconds:.1f} s")
            sys.stderr.flush()

    return update
