from pskernels._types import Array, Indices

CHUNK_POINTS: int
FUNCTIONS: dict[str, int]

def evaluate(
    e: Array,
    out: Array,
    loss: Array,
    function: int,
    mu: float,
    n_threads: int,
) -> None: ...
def residuals(
    u: Array,
    y: Array,
    b: Array,
    classes: bool,
    margin: float,
    n_threads: int,
) -> None: ...
def flow(
    zeta: Array,
    weight: Array,
    y: Array,
    out: Array,
    sums: Array,
    classes: bool,
    n_threads: int,
) -> None: ...
def smooth_derivatives(
    e: Array,
    shift: Array | None,
    weight: Array,
    zeta: Array,
    curvature: Array,
    n_active: Indices,
    losses: Array,
    radial: bool,
    mu: float,
    n_threads: int,
) -> None: ...
def slope(
    e: Array,
    step: Array,
    shift: Array | None,
    weight: Array,
    sums: Array,
    losses: Array,
    radial: bool,
    mu: float,
    t: float,
    n_threads: int,
) -> None: ...
def fenchel_young(
    e: Array,
    zeta: Array,
    weight: Array,
    sums: Array,
    losses: Array,
    radial: bool,
    n_threads: int,
) -> None: ...
def rounding(
    e: Array,
    zeta: Array,
    y: Array,
    error: Array,
    weight: Array,
    sums: Array,
    losses: Array,
    radial: bool,
    eps: float,
    own: float,
    n_threads: int,
) -> None: ...
