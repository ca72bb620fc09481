"""What an estimator has learnt, and that a failure does not change it."""

from contextlib import contextmanager


@contextmanager
def all_or_nothing(estimator):
    """Leave an estimator as it was if a fit fails, so that its old model works."""
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
