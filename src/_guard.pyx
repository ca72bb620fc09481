"""A `with` whose end is reached, whenever Ctrl-C comes.

Python looks for signals where a function starts, behind calls and where loops turn
back: an `__exit__` in Python may end before its first line.  It never does so in
compiled code.
"""


cdef class Guard:
    """Call enter(self) and leave(self) around a block.

    If one of them is interrupted, leave is called once more before the exception goes
    on: it must be able to finish what was begun, and to find nothing left to do.
    """

    cdef object _enter
    cdef object _leave

    def __init__(self, enter, leave):
        self._enter = enter
        self._leave = leave

    def __enter__(self):
        try:
            self._enter(self)
        except BaseException:
            self._leave(self)
            raise

    def __exit__(self, *_):
        try:
            self._leave(self)
        except BaseException:
            self._leave(self)
            raise
