from collections.abc import Callable
from types import TracebackType

class Guard:
    def __init__(
        self, enter: Callable[[Guard], None], leave: Callable[[Guard], None]
    ) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...
