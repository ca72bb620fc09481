"""How many threads to use, and BLAS kept to one thread where that matters."""

import math
import os
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, Self, TypeVar, overload

from pskernels._build_info import COMPILER, OPENMP, openmp_max_threads
from pskernels._guard import Guard
from pskernels._validation import check_int

__all__ = [
    "CALL_WORK",
    "ThreadChoice",
    "COMPILER",
    "OPENMP",
    "available_cpus",
    "cached_property",
    "resolve_n_threads",
    "single_threaded_blas",
    "threads_for",
]

MAX_THREADS = 1024  # OpenMP dies without a message where threads run out

# Multiplications of one native call, well under half a second: Ctrl-C is heard between
# calls.
CALL_WORK = 2**32

# libgomp's pool does not survive a fork: a child that used it would hang.
_forked = False


def _after_fork_in_child() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_after_fork_in_child)


def _cgroup_cpus() -> int | None:
    """Count the CPUs that the control group grants (version 2, then 1), or None."""
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
    except (OSError, ValueError):
        try:
            with open("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") as file:
                quota = file.read().strip()
            with open("/sys/fs/cgroup/cpu/cpu.cfs_period_us") as file:
                period = file.read().strip()
        except OSError:
            return None
    if quota in ("max", "-1"):
        return None
    return max(1, math.ceil(int(quota) / int(period)))


@cache
def available_cpus() -> int:
    """Count the CPUs this process may use, by affinity and control group."""
    if hasattr(os, "sched_getaffinity"):
        n_cpus = len(os.sched_getaffinity(0))
    else:
        n_cpus = os.cpu_count() or 1
    return min(n_cpus, _cgroup_cpus() or n_cpus)


def _threads_from_environment(name: str) -> int | None:
    # OMP_NUM_THREADS may be a list, one number for each nesting level
    value = os.environ.get(name, "").split(",")[0].strip()
    return int(value) if value.isdecimal() and int(value) > 0 else None


def resolve_n_threads(n_threads: int | None) -> int:
    """Find the number of threads to run with; None means all that may be used.

    These are the CPUs of this process, or fewer if PSKERNELS_NUM_THREADS says so, or
    else OMP_NUM_THREADS or OpenMP's own limit, which threadpoolctl sets.
    """
    if n_threads is not None:
        n_threads = check_int(n_threads, "n_threads", minimum=1)
        if n_threads > MAX_THREADS:
            raise ValueError(
                f"n_threads must be at most {MAX_THREADS}, got {n_threads}"
            )
    if _forked or not OPENMP:
        return 1
    if n_threads is not None:
        return n_threads
    limit = _threads_from_environment("PSKERNELS_NUM_THREADS")
    if limit is None:
        # OpenMP reads the variable when it is loaded, and it may be set later
        limit = openmp_max_threads()
        limit = min(limit, _threads_from_environment("OMP_NUM_THREADS") or limit)
    return min(limit, available_cpus())


def threads_for(work: float, grain: int, n_threads: int) -> int:
    """Choose at most n_threads, and at least `grain` of the work for each.

    Threads that meet at a barrier wait for the slowest.  Where others use the
    machine, that may be one that is not running at all, for milliseconds.
    """
    return int(max(1, min(n_threads, work // grain)))


_Value = TypeVar("_Value", covariant=True)


class cached_property(Generic[_Value]):  # noqa: N801 - as functools names it
    """functools.cached_property without its lock.

    That of Python 3.11 has one lock for all instances and holds it while it computes:
    other threads wait, and a child that is forked meanwhile waits for ever.
    """

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> _Value: ...

    def __get__(self, instance: object, owner: type | None = None) -> _Value | Self:
        if instance is None:
            return self
        value = self._compute(instance)
        vars(instance)[self._name] = value  # found before this descriptor from now on
        return value


class ThreadChoice:
    """One thread or all, whichever was faster of late, for calls that are short.

    Threads meet at the end of a call.  Where other programs use the cores, one of
    them may not be running, and a call of 0.1 ms waits for 10 ms or more.  What is
    not in use is tried again after ever more calls.  For work whose results do not
    depend on the number of threads.
    """

    FIRST_WAIT = 16
    MUCH_SLOWER = 1.5

    def __init__(self, n_threads: int) -> None:
        self._used, self._other = n_threads, 1
        self._rates: dict[int, float] = {}
        self._wait = self.FIRST_WAIT
        self._until_trial = 1

    def run(self, call: Callable[[int], None], work: float) -> None:
        """Run call(n_threads), with an amount of work that its time is compared by."""
        if self._used == self._other:
            call(self._used)
            return
        trial = self._until_trial == 0
        n_threads = self._other if trial else self._used
        began = time.perf_counter()
        call(n_threads)
        self._rates[n_threads] = (time.perf_counter() - began) / max(work, 1)
        if trial:
            self._end_trial()
        else:
            self._until_trial -= 1
            if self._rates[self._used] > self.MUCH_SLOWER * self._rates.get(
                self._other, math.inf
            ):
                self._swap()

    def _end_trial(self) -> None:
        if self._rates[self._other] < self._rates[self._used]:
            self._swap()
        else:
            self._wait *= 2
            self._until_trial = self._wait

    def _swap(self) -> None:
        self._used, self._other = self._other, self._used
        self._wait = self._until_trial = self.FIRST_WAIT


class _BlasLimit:
    """Limit BLAS to one thread while at least one caller is inside.

    The limits of OpenBLAS are global: were each of two overlapping callers to restore
    what it found, the last one would leave BLAS limited for good.  Ctrl-C may come
    between any two steps: what it leaves undone is done when the caller is let out
    once more.
    """

    def __init__(self) -> None:
        # reentrant: a signal handler may fork while its thread holds the lock
        self._lock = threading.RLock()
        # the thread of each caller, by the caller's guard
        self._inside: dict[Guard, int] = {}
        self._libraries: list[Any] | None = None
        # their numbers of threads, while they are limited
        self._before: list[int] | None = None

    def __call__(self) -> Guard:
        return Guard(self._let_in, self._let_out)

    def _let_in(self, caller: Guard) -> None:
        with self._lock:
            self._inside[caller] = threading.get_ident()
            if self._before is None:
                libraries = self._find_libraries()
                self._before = [library.get_num_threads() for library in libraries]
                self._set([1] * len(libraries))

    def _let_out(self, caller: Guard) -> None:
        """Let a caller out who may be out already."""
        with self._lock:
            self._inside.pop(caller, None)
            self._lift()

    def _lift(self) -> None:
        if not self._inside and self._before is not None:
            self._set(self._before)
            self._before = None

    def _find_libraries(self) -> list[Any]:
        if self._libraries is None:
            from threadpoolctl import ThreadpoolController

            blas = ThreadpoolController().select(user_api="blas")
            self._libraries = blas.lib_controllers
        return self._libraries

    def _set(self, numbers: list[int]) -> None:
        """Set the numbers of threads of the libraries, from whichever thread it is.

        From threadpoolctl 3.8 on, a thread that has set a limit on OpenBLAS is the only
        one that is heard until it gives that up.  But the first caller to come and the
        last one to leave may be two threads, and a caller may come to stay in a third.
        """
        for library, number in zip(self._find_libraries(), numbers, strict=True):
            give_up = getattr(library, "clear_controlling_thread", None)
            if give_up is None:
                library.set_num_threads(number)
                continue
            give_up(force=True)
            try:
                library.set_num_threads(number)
            finally:
                give_up(force=True)

    def hold(self) -> None:
        """Let nobody in or out, nor BLAS be in the midst of a change, while forking."""
        self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def release_in_child(self) -> None:
        """Forget the callers in threads that a fork has left behind."""
        me = threading.get_ident()
        self._inside = {
            caller: thread for caller, thread in self._inside.items() if thread == me
        }
        self._lift()
        self._lock.release()


single_threaded_blas = _BlasLimit()
os.register_at_fork(
    before=single_threaded_blas.hold,
    after_in_parent=single_threaded_blas.release,
    after_in_child=single_threaded_blas.release_in_child,
)
