"""The loss as native code takes it (losses.h), from the tuple that Python gives."""

cdef extern from "losses.h" nogil:
    ctypedef struct psk_loss:
        int logistic
        double epsilon
        double lower
        double upper
        double radius


cdef inline psk_loss unpack(tuple loss) except *:
    """(logistic, epsilon, lower, upper, radius)"""
    cdef psk_loss spec
    spec.logistic, spec.epsilon, spec.lower, spec.upper, spec.radius = loss
    return spec
