"""Processes, threads, interrupts and exhaustion, at the level of the public API.

Every wait has a limit of time: a child that hangs is killed, and the test fails.  Tests
marked `long` repeat what the quick ones do, many times.
"""

import dis
import hashlib
import importlib.util
import json
import multiprocessing
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import pskernels as psk
from pskernels import _threads

TIMEOUT = 120  # seconds, for what takes one or two where the machine is quiet

pytestmark = [
    pytest.mark.skipif(
        not os.path.isdir("/proc/self/task"), reason="needs Linux: fork and /proc"
    ),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def quick_and_long(names, quick, long):
    """Parametrise a test by a few values, and by many where `long` is asked for."""
    return pytest.mark.parametrize(
        names, [quick, pytest.param(long, marks=pytest.mark.long)]
    )


def points(n=1500, d=4):
    return np.random.default_rng(0).normal(size=(n, d))


def compute(n_threads=2):
    """Arrays that depend on all that threads and BLAS do in a fit."""
    X = points()
    gram = psk.sketch_gram(X, 20, 0.05, random_state=0, n_threads=n_threads)
    model = psk.solve(
        X, np.sin(X[:, 0]), loss="absolute", alpha=0.1, n_threads=n_threads
    )
    return gram.SK, gram.SKSt, model.coef


def assert_same(results, expected):
    for result, right in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, right)


def blas_threads():
    return {
        library["num_threads"]
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }


def run_python(code, *arguments, environment=()):
    """What a fresh interpreter prints; it must end well, and in time."""
    process = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env={**os.environ, **dict(environment)},
    )
    assert process.returncode == 0, (process.returncode, process.stderr)
    return process.stdout


# --------------------------------------------------------------------------
# Fork
# --------------------------------------------------------------------------


def in_forked_child(function, *arguments):
    """What a function returns in a child; kill the child if it hangs."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(read)
            with os.fdopen(write, "wb") as file:
                pickle.dump(function(*arguments), file)
            code = 0
        finally:
            os._exit(code)  # nothing of pytest may run in the child
    os.close(write)
    answer, deadline = b"", time.monotonic() + TIMEOUT
    with os.fdopen(read, "rb", buffering=0) as file:
        while True:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([file], [], [], left)[0]:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                pytest.fail(f"a forked child has hung for {TIMEOUT} s")
            part = file.read(2**16)
            if not part:
                break
            answer += part
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return pickle.loads(answer)


@contextmanager
def another_thread_that_fits():
    """Fit in a thread for as long as the block lasts, and check each result."""
    expected = compute()
    stop, failures = threading.Event(), []

    def work():
        while not stop.is_set():
            try:
                assert_same(compute(), expected)
            except BaseException as error:
                failures.append(error)
                return

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield expected
    finally:
        stop.set()
        thread.join(TIMEOUT)
    assert not thread.is_alive()
    assert not failures, failures


@quick_and_long("n_forks", 5, 100)
def test_a_fork_while_another_thread_fits_computes_the_same(n_forks):
    with another_thread_that_fits() as expected:
        for _ in range(n_forks):
            assert_same(in_forked_child(compute), expected)


def test_a_fork_while_another_thread_computes_what_is_cached_does_not_hang():
    inside, leave = threading.Event(), threading.Event()

    class Slow:
        def __init__(self, wait):
            self.wait = wait

        @_threads.cached_property
        def value(self):
            return self.wait()

    thread = threading.Thread(
        target=lambda: Slow(lambda: (inside.set(), leave.wait(TIMEOUT))).value
    )
    thread.start()
    assert inside.wait(TIMEOUT)
    try:
        assert in_forked_child(lambda: Slow(lambda: 1).value) == 1
    finally:
        leave.set()
        thread.join(TIMEOUT)


@quick_and_long("n_pools", 1, 20)
def test_a_pool_forked_while_another_thread_fits_computes_the_same(n_pools):
    context = multiprocessing.get_context("fork")
    with another_thread_that_fits() as expected:
        for _ in range(n_pools):
            with context.Pool(2) as pool:  # leaving it terminates what hangs
                for results in pool.map_async(compute, [1, 2, 2]).get(TIMEOUT):
                    assert_same(results, expected)


@pytest.mark.parametrize("backend", ["loky", "multiprocessing"])
@quick_and_long("n_calls", 3, 40)
def test_joblib_while_another_thread_fits_computes_the_same(backend, n_calls):
    joblib = pytest.importorskip("joblib")
    jobs = [joblib.delayed(compute)(n_threads) for n_threads in [1, 2] * n_calls]
    with another_thread_that_fits() as expected:
        parallel = joblib.Parallel(n_jobs=2, backend=backend, timeout=TIMEOUT)
        for results in parallel(jobs):
            assert_same(results, expected)


@contextmanager
def another_thread_inside_the_blas_limit():
    inside, leave = threading.Event(), threading.Event()

    def work():
        with _threads.single_threaded_blas():
            inside.set()
            leave.wait(TIMEOUT)

    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(TIMEOUT)
    try:
        yield
    finally:
        leave.set()
        thread.join(TIMEOUT)


def test_the_blas_limit_ends_with_the_last_caller_in_whichever_thread():
    with threadpool_limits(2, user_api="blas"):
        pass  # this thread was the first to set a limit, and is alive
    before = blas_threads()
    with threadpool_limits(2, user_api="blas"):
        mine = _threads.single_threaded_blas()
        mine.__enter__()
        with another_thread_inside_the_blas_limit():
            mine.__exit__(None, None, None)
            assert blas_threads() == {1}  # the other one is still inside
        assert blas_threads() == {2}
    assert blas_threads() == before


def limit_blas_interrupted_at(step):
    """Limit BLAS, with Ctrl-C the step-th time that Python looks for signals in it.

    It does so behind calls, at the start of functions and where loops turn back.
    Returns whether there was such a time, and the functions that were interrupted.
    """
    left, functions, last = step, set(), {}

    def trace(frame, event, argument):
        nonlocal left
        if frame.f_code.co_filename != _threads.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            before = last.get(id(frame), "")
            last[id(frame)] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if before.startswith(("RESUME", "CALL", "JUMP_BACKWARD")):
                functions.add(frame.f_code.co_name)
                left -= 1
                if left < 0:
                    raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        with _threads.single_threaded_blas():
            pass
    except KeyboardInterrupt:
        return True, functions
    finally:
        sys.settrace(None)
    return False, functions


def test_ctrl_c_at_any_moment_of_the_blas_limit_does_not_leave_it_set():
    with _threads.single_threaded_blas():
        pass  # libraries are known
    before = blas_threads()
    interrupted, step = True, 0
    while interrupted:
        interrupted, functions = limit_blas_interrupted_at(step)
        assert blas_threads() == before, (step, functions)
        assert not _threads.single_threaded_blas._inside
        step += 1
    assert step > 10 and {"_let_in", "_let_out", "_set"} <= functions


def blas_threads_around_a_fit():
    before = blas_threads()
    compute()
    return before, blas_threads()


def test_a_child_does_not_inherit_the_blas_limit_of_a_thread_that_is_not_there():
    with threadpool_limits(2, user_api="blas"):
        with another_thread_inside_the_blas_limit():
            assert blas_threads() == {1}
            assert in_forked_child(blas_threads_around_a_fit) == ({2}, {2})
            assert blas_threads() == {1}  # the parent's is as it was
        assert blas_threads() == {2}


def test_a_child_forked_inside_the_blas_limit_leaves_it_as_the_parent_does():
    def fork_inside():
        limit = _threads.single_threaded_blas()
        with limit:
            inside = in_forked_child(blas_threads)
            pid_of_parent = os.getpid()
            read, write = os.pipe()
            child = os.fork()
        # both go on from here
        numbers = sorted(blas_threads()), sorted(blas_threads_around_a_fit()[1])
        if os.getpid() != pid_of_parent:
            os.write(write, json.dumps(numbers).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as file:
            assert select.select([file], [], [], TIMEOUT)[0]
            of_child = json.load(file)
        os.waitpid(child, 0)
        return inside, numbers, of_child

    with threadpool_limits(2, user_api="blas"):
        # in a child of its own, which is killed if one of the two hangs
        inside, of_parent, of_child = in_forked_child(fork_inside)
    assert inside == {1}
    assert of_parent == ([2], [2])
    assert of_child == [[2], [2]]


# --------------------------------------------------------------------------
# Many Python threads
# --------------------------------------------------------------------------


def many_jobs():
    """Functions without arguments, each of which returns an array."""
    from pskernels.estimators import (
        SketchedKernelClassifier,
        SketchedKernelRegressor,
        SketchedQuantileRegressor,
    )

    X = points(1200, 5)
    y = np.sin(X[:, 0]) + 0.1 * X[:, 1]
    signs = np.where(y > 0, 1.0, -1.0)
    options = dict(n_components=20, n_threads=2, random_state=0)
    regressor = SketchedKernelRegressor(**options).fit(X, y)

    def solve(loss, targets, solver="auto", tol=1e-6):
        return lambda: (
            psk.solve(
                X, targets, loss=loss, alpha=0.01, solver=solver, tol=tol, n_threads=2
            ).coef
        )

    return [
        lambda: psk.sketch_gram(X, 20, 0.05, random_state=0, n_threads=2).SK,
        lambda: psk.sketch_gram(X, 20, kernel="matern32", random_state=0).SKSt,
        lambda: psk.kernel_matmul(X, X, y, gamma=0.1, n_threads=2),
        lambda: psk.FeatureMap(
            sketch=psk.PSparsified(30), random_state=0, n_threads=2
        ).fit_transform(X),
        lambda: psk.FeatureMap(
            lambda A, B: A @ B.T, sketch=psk.SubSampling(10), random_state=0
        ).fit_transform(X),
        lambda: (
            psk.RandomFourierFeatures(40, random_state=0, n_threads=2)
            .fit(X)
            .transform(X)
        ),
        solve("squared", y),
        solve("huber", y),
        solve("absolute", y),
        solve(psk.Pinball(0.9), y),
        solve("logistic", signs),
        solve("hinge", signs),
        solve("logistic", signs, "lbfgs", 1e-3),
        solve("huber", np.column_stack([y, signs])),
        lambda: psk.PSparsified(50, 0.1).draw(20_000, 0, n_threads=2).to_scipy().data,
        lambda: SketchedKernelRegressor(**options).fit(X, y).predict(X),
        lambda: (
            SketchedKernelClassifier(loss="logistic", **options)
            .fit(X, signs)
            .predict_proba(X)
        ),
        lambda: (
            SketchedQuantileRegressor(quantiles=[0.2, 0.8], **options)
            .fit(X, y)
            .predict(X)
        ),
        lambda: regressor.predict(X),  # one model, for all threads
    ]


@quick_and_long("n_rounds", 1, 20)
def test_many_python_threads_at_once_give_the_single_results(n_rounds):
    n_callers = 32
    jobs = many_jobs()
    expected = [job() for job in jobs]
    before = blas_threads()
    barrier = threading.Barrier(n_callers)

    def work(i):
        barrier.wait(TIMEOUT)
        return jobs[i % len(jobs)]()

    with ThreadPoolExecutor(n_callers) as pool:
        for first in range(n_rounds):
            numbers = range(first, first + n_callers)
            futures = [pool.submit(work, i) for i in numbers]
            results = [future.result(TIMEOUT) for future in futures]
            assert_same(results, [expected[i % len(jobs)] for i in numbers])
    assert blas_threads() == before


# --------------------------------------------------------------------------
# No more threads than were asked for
# --------------------------------------------------------------------------

COUNT_THREADS = """
import os, sys, threading
import numpy as np
import pskernels as psk
from pskernels import _threads

X = np.random.default_rng(0).normal(size=(3000, 4))

def n_os_threads():
    return len(os.listdir("/proc/self/task"))

class Watch:
    '''The largest number of threads of this process, this one left out.'''
    def __enter__(self):
        self.most, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self
    def _look(self):
        while not self._stop.wait(0.001):
            self.most = max(self.most, n_os_threads() - 1)
    def __exit__(self, *_):
        # a team of OpenMP stays as long as the thread that made it
        self.most = max(self.most, n_os_threads() - 1)
        self._stop.set()
        self._thread.join()

def work(n_threads):
    psk.kernel_matmul(X, X, X[:, 0], gamma=0.1, n_threads=n_threads)
    psk.solve(X, X[:, 0], loss="absolute", alpha=0.01, n_threads=n_threads)
    return n_os_threads()

def grown(n_threads):
    '''Threads that this process has more while it computes.'''
    before = n_os_threads()
    with Watch() as watch:
        work(n_threads)
    return watch.most - before, _threads.resolve_n_threads(None)
"""

N_WORKERS = 4
IN_THREADS = {
    "concurrent.futures": """
from concurrent.futures import ThreadPoolExecutor
def run(n_threads):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [n_threads] * 16))
""",
    "joblib": """
import joblib
def run(n_threads):
    joblib.Parallel(4, backend="threading")([joblib.delayed(work)(n_threads)] * 16)
""",
    "dask": """
import dask
def run(n_threads):
    jobs = [dask.delayed(work, pure=False)(n_threads) for _ in range(16)]
    dask.compute(*jobs, scheduler="threads", num_workers=4)
""",
}


def skip_without(module):
    # not importorskip: that would load another OpenMP into this process
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")


@pytest.mark.parametrize(
    "library",
    [
        "concurrent.futures",
        pytest.param("joblib", marks=pytest.mark.long),
        pytest.param("dask", marks=pytest.mark.long),
    ],
)
def test_one_thread_for_each_worker_makes_no_more_than_the_workers(library):
    if library != "concurrent.futures":
        skip_without(library)
    code = COUNT_THREADS + IN_THREADS[library]
    code += """
work(1)
before = n_os_threads()
with Watch() as watch:
    run(int(sys.argv[1]))
print(watch.most - before)
"""
    # joblib has threads of its own that manage the pool
    allowed = N_WORKERS + (3 if library == "joblib" else 0)
    assert int(run_python(code, "1")) <= allowed
    if library == "concurrent.futures" and _threads.OPENMP:
        assert int(run_python(code, "4")) > allowed  # they would be seen


@pytest.mark.parametrize(
    "inner, n_threads, expected",
    [
        (1, None, 1),
        pytest.param(2, None, 2, marks=pytest.mark.long),
        pytest.param(2, 1, 1, marks=pytest.mark.long),
    ],
)
def test_workers_of_joblib_keep_to_their_share_of_threads(inner, n_threads, expected):
    skip_without("joblib")
    code = (
        COUNT_THREADS
        + f"""
import joblib
with joblib.parallel_config("loky", n_jobs=2, inner_max_num_threads={inner}):
    jobs = [joblib.delayed(grown)({n_threads})] * 4
    for growth, by_default in joblib.Parallel()(jobs):
        assert growth <= {expected} - 1, growth
        assert by_default <= {inner}, by_default
"""
    )
    run_python(code, environment={"PSKERNELS_NUM_THREADS": ""})


@pytest.mark.parametrize("user_api", ["openmp", None])
def test_threadpoolctl_limits_the_default_number_of_threads(user_api, monkeypatch):
    monkeypatch.delenv("PSKERNELS_NUM_THREADS", raising=False)
    before = _threads.resolve_n_threads(None)
    with threadpool_limits(1, user_api=user_api):
        assert _threads.resolve_n_threads(None) == 1
        if _threads.OPENMP:
            assert _threads.resolve_n_threads(2) == 2  # who gives a number gets it
    assert _threads.resolve_n_threads(None) == before


def test_a_limit_of_threadpoolctl_holds_in_the_calls():
    code = (
        COUNT_THREADS
        + """
from threadpoolctl import threadpool_limits
with threadpool_limits(1):
    print(grown(None)[0])
"""
    )
    assert int(run_python(code, environment={"PSKERNELS_NUM_THREADS": ""})) <= 0


# --------------------------------------------------------------------------
# Other libraries that bring an OpenMP of their own
# --------------------------------------------------------------------------

OTHERS = {
    "sklearn": """
from sklearn.cluster import KMeans
other = lambda: KMeans(3, n_init=1, random_state=0).fit(X).inertia_
""",
    "torch": """
import torch
other = lambda: (torch.tensor(X) @ torch.tensor(X).T).sigmoid().sum().item()
""",
    "lightgbm": """
import lightgbm
data = lambda: lightgbm.Dataset(X, X[:, 0], params={"verbose": -1})
options = {"num_threads": 2, "verbose": -1, "deterministic": True}
other = lambda: lightgbm.train(options, data(), 5).predict(X).sum()
""",
    "xgboost": """
import xgboost
other = lambda: xgboost.train(
    {"nthread": 2}, xgboost.DMatrix(X, X[:, 0]), 5
).predict(xgboost.DMatrix(X)).sum()
""",
}

BOTH = """
import hashlib
import numpy as np
X = np.random.default_rng(0).normal(size=(1500, 4))
{}
def ours():
    gram = psk.sketch_gram(X, 20, 0.05, random_state=0, n_threads=2)
    model = psk.solve(X, np.sin(X[:, 0]), loss="absolute", alpha=0.1, n_threads=2)
    return hashlib.sha256(b"".join(a.tobytes() for a in (*gram[:2], model.coef)))
first = other()
digests = set()
for _ in range(3):
    digests.add(ours().hexdigest())
    assert abs(other() - first) <= 1e-5 * abs(first)
print(*digests)
"""


@pytest.mark.parametrize(
    "ours_first", [True, pytest.param(False, marks=pytest.mark.long)]
)
@pytest.mark.parametrize(
    "library",
    # waiting threads of two runtimes take the cores from each other
    [
        library
        if library == "sklearn"
        else pytest.param(library, marks=pytest.mark.long)
        for library in OTHERS
    ],
)
def test_the_order_of_import_beside_another_openmp_changes_nothing(library, ours_first):
    skip_without(library)
    imports = ["import pskernels as psk", OTHERS[library]]
    code = BOTH.format("\n".join(imports if ours_first else imports[::-1]))
    SK, SKSt, coef = compute()
    expected = hashlib.sha256(b"".join(a.tobytes() for a in (SKSt, SK, coef)))
    assert run_python(code).split() == [expected.hexdigest()]


# --------------------------------------------------------------------------
# Interrupts
# --------------------------------------------------------------------------

# Runs the job that is named on standard input over and over, until Ctrl-C, and then
# tells what is left of it.
INTERRUPTED = """
import ctypes, faulthandler, gc, json, os, signal, sys, warnings
import numpy as np
import pskernels as psk
from pskernels.estimators import SketchedKernelRegressorCV
from threadpoolctl import threadpool_info

faulthandler.register(signal.SIGUSR1)  # tells where it is
# where tests run in the background, shells have children ignore Ctrl-C
signal.signal(signal.SIGINT, signal.default_int_handler)
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.normal(size=(60_000, 5))
Z = rng.normal(size=(20_000, 100))
y = Z[:, 0] + rng.normal(size=20_000)
# of so many kernel values that no search on 20,000 points ends before it is stopped
search = SketchedKernelRegressorCV(
    alphas=[1e-2, 1e-4], gammas=[0.01, 0.1, 1.0], cv=5, p=None, random_state=0
)
search.fit(X[:500], y[:500])
alphas = np.logspace(-1, -9, 100)
path = lambda loss, solver: psk.path(Z, y, alphas=alphas, loss=loss, solver=solver)
jobs = {
    "product": lambda: psk.kernel_matmul(X, X, X[:, 0], gamma=0.1),
    "newton": lambda: path("absolute", "newton"),
    "adam": lambda: path("absolute", "adam"),
    "lbfgs": lambda: path("huber", "lbfgs"),
    "search": lambda: search.fit(X[:20_000], y),
    "Gaussian": lambda: psk.Gaussian(100).draw(100_000, 0),
    "PSparsified": lambda: psk.PSparsified(100, 0.2).draw(200_000, 0),
    "CountSketch": lambda: psk.CountSketch(300).draw(1_000_000, 0),
    "ROS": lambda: psk.ROS(100).draw(100_000, 0),
}

def check():
    gram = psk.sketch_gram(X[:1500], 20, 0.05, random_state=0, n_threads=2)
    model = psk.solve(Z[:1500], y[:1500], loss="absolute", alpha=0.1, n_threads=2)
    results = gram.SK, gram.SKSt, model.coef, search.predict(X[:100])
    return b"".join(a.tobytes() for a in results)

def n_blas_threads():
    return [i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"]

expected, n_blas = check(), n_blas_threads()
print("ready", flush=True)
for line in sys.stdin:
    job = jobs[line.strip()]
    try:
        print("started", flush=True)
        while True:
            job()
    except KeyboardInterrupt:
        pass
    print("stopped", flush=True)
    gc.collect()
    right = check() == expected
    # what was freed amid the heap of the C library is no loss, but would count
    getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: 0)(0)
    print(json.dumps({
        "right": right,
        "blas": n_blas_threads() == n_blas,
        "threads": len(os.listdir("/proc/self/task")),
        "bytes": 4096 * int(open("/proc/self/statm").read().split()[1]),
    }), flush=True)
"""
INTERRUPTED_JOBS = (
    "product newton adam lbfgs search Gaussian PSparsified CountSketch ROS".split()
)
MB = 2**20


class Interrupted:
    """A process that is interrupted again and again."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", INTERRUPTED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # select must see all that was not yet read
        )
        self._expect(b"ready")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def _read(self):
        ready = select.select([self._process.stdout], [], [], TIMEOUT)[0]
        if not ready:
            self._process.send_signal(signal.SIGUSR1)
            time.sleep(1)
            pytest.fail(f"no answer for {TIMEOUT} s; standard error has where it is")
        return self._process.stdout.readline().strip()

    def _expect(self, word):
        answer = self._read()
        assert answer == word, (answer, self._process.poll())

    def interrupt(self, job, after):
        """Seconds until a job has stopped, and what is left then."""
        self._process.stdin.write(f"{job}\n".encode())
        self._expect(b"started")
        time.sleep(after)
        sent = time.monotonic()
        self._process.send_signal(signal.SIGINT)
        self._expect(b"stopped")
        return time.monotonic() - sent, json.loads(self._read())


@quick_and_long("n_interrupts", 5, 200)
def test_ctrl_c_at_any_moment_stops_in_time_and_leaves_nothing_behind(n_interrupts):
    rng = np.random.default_rng()
    seconds, states = [], []
    with Interrupted() as process:
        for job in INTERRUPTED_JOBS if n_interrupts > 5 else ["search", "ROS"]:
            process.interrupt(job, 0.3)  # pools and caches are filled
        for i in range(n_interrupts):
            job = INTERRUPTED_JOBS[i % len(INTERRUPTED_JOBS)]
            after = rng.uniform(0, 0.5)
            # others may take the cores away for a while: the best of three counts
            for _ in range(3):
                delay, state = process.interrupt(job, after)
                states.append(state)
                assert state["right"] and state["blas"], (job, after, state)
                if delay < 0.5:
                    break
            else:
                pytest.fail(f"{job} has not stopped in 0.5 s after {after} s")
            seconds.append(delay)
    print(f"median {np.median(seconds):.3f} s, longest {max(seconds):.3f} s")
    print("threads", states[0]["threads"], "to", states[-1]["threads"])
    print("MB", [state["bytes"] // MB for state in states])
    assert np.median(seconds) < 0.25
    if n_interrupts > 5:
        ninth = len(INTERRUPTED_JOBS)
        early = max(state["threads"] for state in states[:ninth])
        assert max(state["threads"] for state in states[-ninth:]) <= early
        # arrays come back at once, the heap of small objects breathes
        growth = states[-1]["bytes"] - max(state["bytes"] for state in states[:ninth])
        assert growth < 8 * MB, growth / MB


# --------------------------------------------------------------------------
# Exhaustion
# --------------------------------------------------------------------------

# OpenMP ends the process if it cannot start a thread, and OpenBLAS ends or hangs if it
# cannot have its buffers, so that all of them are made before memory is short.
EXHAUSTED = """
import resource, sys
import numpy as np
import pskernels as psk
from pskernels.estimators import SketchedKernelRegressor, load

rng = np.random.default_rng(0)
X = rng.normal(size=(100_000, 2))
y = np.sin(X[:, 0])
Z = np.asfortranarray(rng.normal(size=(4000, 3000)))  # is copied, 96 MB
wide = rng.normal(size=(400, 20_000))  # 48 MB of landmarks: no heap has room for them
small = SketchedKernelRegressor(n_components=20, n_threads=2, random_state=0)
small.fit(X[:1000], y[:1000])
SketchedKernelRegressor(n_components=300, random_state=0).fit(wide, y[:400]).save(
    sys.argv[1]
)
load(sys.argv[1])
# BLAS in two threads at once, which have a buffer each
psk.FeatureMap(sketch=psk.SubSampling(300), n_threads=2).fit_transform(X[:9000])
psk.solve(Z[:, :200], y[:4000], loss="absolute", alpha=0.1, n_threads=2)

def check():
    gram = psk.sketch_gram(X[:1500], 20, 0.05, random_state=0, n_threads=2)
    model = psk.solve(Z[:1500, :50], y[:1500], loss="absolute", alpha=0.1, n_threads=2)
    results = gram.SK, gram.SKSt, model.coef, small.predict(X[:100])
    return b"".join(a.tobytes() for a in results)

many, B = dict(sketch=psk.SubSampling(2000), random_state=0), np.ones((9, 2000))
jobs = {
    "sketch_gram": (64, lambda: psk.sketch_gram(X, 2000, parts="SK", random_state=0)),
    "kernel_matmul": (64, lambda: psk.kernel_matmul(X, X[:9], B, gamma=1.0)),
    "Gaussian": (64, lambda: psk.Gaussian(2000).draw(100_000, 0)),
    "PSparsified": (64, lambda: psk.PSparsified(2000, 0.5).draw(100_000, 0)),
    "FeatureMap": (64, lambda: psk.FeatureMap(**many).fit_transform(X)),
    "solve": (64, lambda: psk.solve(Z, y[:4000], loss="absolute", alpha=0.1)),
    "estimator": (64, lambda: small.set_params(n_components=2000).fit(X, y)),
    "load": (4, lambda: load(sys.argv[1])),
}
expected = check()
for name, (spare, job) in jobs.items():
    with open("/proc/self/statm") as file:
        size = resource.getpagesize() * int(file.read().split()[0])
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (size + spare * 2**20, hard))
    try:
        job()
        outcome = "no error"
    except MemoryError:
        outcome = "MemoryError"
    right = check() == expected  # still short of memory
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    print(name, outcome, right, flush=True)
"""


@pytest.mark.long
@pytest.mark.skipif(
    "asan" in os.environ.get("LD_PRELOAD", ""),
    reason="AddressSanitizer takes the whole address space, and ends the process",
)
def test_where_memory_runs_out_there_is_an_error_and_the_next_call_works(tmp_path):
    lines = run_python(EXHAUSTED, str(tmp_path / "model.npz")).splitlines()
    assert len(lines) == 8
    for line in lines:
        assert line.split()[1:] == ["MemoryError", "True"], line
