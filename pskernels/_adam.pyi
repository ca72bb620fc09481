from pskernels._types import Array, Indices

def adam_steps(
    Z: Array,
    order: Indices,
    mix: Array | None,
    sign: Array,
    offset: Array,
    weight: Array,
    state: Array,
    losses: Array,
    radial: bool,
    work: Array,
    adam: tuple[float, ...],
    batch: int,
    n_steps: int,
) -> None: ...
