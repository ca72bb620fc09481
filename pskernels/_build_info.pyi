OPENMP: int
DEBUG: bool
COMPILER: str

def openmp_max_threads() -> int: ...
