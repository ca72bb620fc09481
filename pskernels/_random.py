"""Seeds: whatever a user gives becomes the key of a counter-based generator."""

from typing import Any

import numpy as np
import numpy.typing as npt

from pskernels._types import RandomState
from pskernels._validation import check_int


def philox_key(random_state: RandomState) -> npt.NDArray[np.uint64]:
    """Make two 64-bit words that seed a counter-based generator.

    Parameters
    ----------
    random_state : None, int, numpy Generator or numpy RandomState
        None takes fresh entropy; a generator is advanced, so that two calls
        with it give different keys.
    """
    if isinstance(random_state, np.random.Generator):
        return random_state.integers(0, 2**64, size=2, dtype=np.uint64)
    if isinstance(random_state, np.random.RandomState):
        return np.frombuffer(random_state.bytes(16), dtype=np.uint64).copy()
    if random_state is not None:
        if not isinstance(random_state, (int, np.integer)):
            raise TypeError(
                "random_state must be None, an integer, a numpy Generator or "
                f"RandomState, got {random_state!r}"
            )
        random_state = check_int(random_state, "random_state", minimum=0)
    words: npt.NDArray[Any] = np.random.SeedSequence(random_state).generate_state(
        2, np.uint64
    )
    return words


def make_generator(key: npt.NDArray[np.uint64], stream: int = 0) -> np.random.Generator:
    """Make NumPy's generator on the same key; streams are 2^192 counters apart."""
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, stream]))
