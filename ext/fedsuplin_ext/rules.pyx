"""Triggers and weightings that the loop calls without the GIL, and the one place where a plugin's form is decided.

`user` points to the parameters, as doubles. A rule may be a scipy.LowLevelCallable (from Cython, numba or ctypes) or a
plain Python callable, which is called with the GIL held.
"""

import ctypes
import sys

from cpython.pycapsule cimport PyCapsule_GetContext, PyCapsule_GetName, PyCapsule_GetPointer
from libc.math cimport NAN, sqrt
from scipy import LowLevelCallable


# --- triggers ------------------------------------------------------------------------------------------------------------

cdef int gain_above(double gain, double elapsed, void* user) noexcept nogil:
    """gain > threshold."""
    return gain > (<double*>user)[0]


cdef int timed_gain_above(double gain, double elapsed, void* user) noexcept nogil:
    """elapsed · gain > threshold."""
    return elapsed * gain > (<double*>user)[0]


cdef int elapsed_at_least(double gain, double elapsed, void* user) noexcept nogil:
    """elapsed ≥ threshold."""
    return elapsed >= (<double*>user)[0]


# --- weightings ----------------------------------------------------------------------------------------------------------

cdef double unit(double norm, double sigma, void* user) noexcept nogil:
    return 1.0


cdef double capped(double norm, double sigma, void* user) noexcept nogil:
    """min(1, γ/norm)."""
    cdef double gamma = (<double*>user)[0]
    return 1.0 if norm <= gamma else gamma / norm


cdef double inverse_variance(double norm, double sigma, void* user) noexcept nogil:
    """1/max(σ, ρ, γ√norm)²."""
    cdef double* parameters = <double*>user
    cdef double level = parameters[0] * sqrt(norm)
    level = max(level, sigma, parameters[1])
    return 1.0 / (level * level)


TRIGGERS = ("gain_above", "timed_gain_above", "elapsed_at_least")
WEIGHTINGS = ("unit", "capped", "inverse_variance")


def trigger(name, *parameters):
    """One of the compiled triggers above with its parameters, as a scipy.LowLevelCallable."""
    return _low_level(TRIGGERS, name, parameters)


def weighting(name, *parameters):
    """One of the compiled weightings above with its parameters, as a scipy.LowLevelCallable."""
    return _low_level(WEIGHTINGS, name, parameters)


def _low_level(names, name, parameters):
    if name not in names:
        raise ValueError(f"no compiled rule {name!r}; there are {', '.join(names)}")
    numbers = (ctypes.c_double * max(1, len(parameters)))(*parameters)
    return LowLevelCallable.from_cython(sys.modules[__name__], name, ctypes.cast(numbers, ctypes.c_void_p))


# --- from a plugin to a pointer --------------------------------------------------------------------------------------------

cdef class Rule:
    """A function pointer and its user data, from whichever form a plugin has; keeps alive what they point into."""

    def __cinit__(self, plugin, str method, str result):
        form = plugin.compiled() if hasattr(plugin, "compiled") else getattr(plugin, method)
        self.name = repr(plugin)
        self.gives_weight = result == "double"
        if isinstance(form, LowLevelCallable):
            self._take(form, f"{result} (double, double, void *)")
        else:
            self.source = form
            self.user = <void*>self
            self.function = <void*>python_weight if self.gives_weight else <void*>python_trigger

    def __call__(self, double first, double second):
        """The rule on two numbers, through the same pointer that the loop calls."""
        if self.gives_weight:
            return (<weight_function>self.function)(first, second, self.user)
        return (<trigger_function>self.function)(first, second, self.user)

    cdef _take(self, form, str expected):
        capsule = tuple.__getitem__(form, 0)
        cdef const char* signature = PyCapsule_GetName(capsule)
        found = "none" if signature == NULL else (<bytes>signature).decode()
        if found.replace(" ", "") != expected.replace(" ", ""):
            raise TypeError(f"{self.name}: its compiled form has the signature {found!r}, it must be {expected!r}")
        self.source = form
        self.function = PyCapsule_GetPointer(capsule, signature)
        self.user = PyCapsule_GetContext(capsule)


cdef double python_weight(double norm, double sigma, void* user) noexcept nogil:
    with gil:
        return <double>call_python(<Rule>user, norm, sigma, float, NAN)


cdef int python_trigger(double gain, double elapsed, void* user) noexcept nogil:
    with gil:
        return <int>call_python(<Rule>user, gain, elapsed, bool, -1)


cdef object call_python(Rule rule, double first, double second, kind, failed):
    try:
        return kind(rule.source(first, second))
    except BaseException as error:  # carried to the Python edge by the engine, which ends the run with it
        rule.error = error
        return failed
