"""From a plugin to a function pointer: which form of a trigger, weighting or choice is used.

A form is a scipy.LowLevelCallable (from Cython, numba or ctypes), which is called without the GIL,
or a plain Python callable, which is called with it. Both are checked here, when an algorithm is
made; the loop only calls them.
"""

import ctypes
import inspect
import math
import operator

import numpy as np
from scipy import LowLevelCallable

from cpython.pycapsule cimport PyCapsule_GetContext, PyCapsule_GetName, PyCapsule_GetPointer
from libc.math cimport NAN

from fedsuplin_ext.signatures cimport (
    choice_function,
    stateful_choice_function,
    stateful_trigger_function,
    stateful_weight_function,
    trigger_function,
    weight_function,
)

__all__ = ["Rule", "from_cython", "low_level"]

# By axis: the method of a plugin that is its Python form, the method's arguments, and the arguments
# added for a plugin with state. The protocols of fedsuplin/contracts/protocols.py say the same to
# plugin authors; this package can't import them, so a test compares the two.
METHODS = {
    "trigger": ("fires", ("gain", "elapsed"), ("state",)),
    "weighting": ("weight", ("norm", "sigma"), ("residual", "state")),
    "policy": ("choose", ("estimates", "widths", "targets", "draw"), ("state",)),
}
# The same in C: the result, the arguments before `user`, and those added for a plugin with state.
SIGNATURES = {
    "trigger": ("int", ["double", "double"], ["double *"]),
    "weighting": ("double", ["double", "double"], ["double", "double *"]),
    "policy": ("int", ["double *", "double *", "double *", "int", "int", "double"], ["double *"]),
}


def low_level(function, *parameters):
    """Bind a compiled function to its parameters, as a scipy.LowLevelCallable.

    When the function is called, `user` points to the parameters, as doubles.

    `function` is a numba `@cfunc`, a ctypes function, or a LowLevelCallable without user data.
    """
    numbers = [float(value) for value in parameters]
    if any(math.isnan(value) for value in numbers):
        raise ValueError(f"a parameter of {function!r} is NaN: {numbers}")
    if isinstance(function, LowLevelCallable) and function.user_data is not None:
        raise TypeError(
            f"{function!r} already has user data: give low_level the function without it"
        )
    held = (ctypes.c_double * max(1, len(numbers)))(*numbers)
    user = ctypes.cast(held, ctypes.c_void_p)  # keeps `held` alive; the LowLevelCallable keeps it
    return LowLevelCallable(getattr(function, "ctypes", function), user)


def from_cython(module, name, *parameters):
    """`low_level` for a `cdef` function that the .pxd of a Cython module declares."""
    if name not in getattr(module, "__pyx_capi__", {}):
        there = ", ".join(sorted(getattr(module, "__pyx_capi__", {}))) or "none"
        raise ValueError(
            f"{module.__name__} has no cdef function {name!r}; its .pxd declares {there}"
        )
    return low_level(LowLevelCallable.from_cython(module, name), *parameters)


cdef class Rule:
    """What a plugin decides at each pull: checked, and callable as the loop calls it."""

    def __init__(self, str axis, plugin, form=None, n_clients=0):
        """Make the rule of `plugin` for an axis.

        `form` is given where it is known already; `n_clients` where the rule is for one run.
        """
        self.axis, self.plugin, self.name = axis, plugin, repr(plugin)
        self.state_size = checked_state_size(self.name, getattr(plugin, "state_size", 0))
        self.reads_norm = bool(getattr(plugin, "reads_norm", True))
        self._bind(form_of(axis, plugin) if form is None else form)
        if self.state_size and n_clients:
            self.state = np.zeros((n_clients, self.state_size))
            self.slots = <double*><size_t>self.state.ctypes.data
            self.rows = list(self.state) if self.user == <void*>self else None

    def for_run(self, int n_clients):
        """The same rule with fresh state for each client, and no error."""
        return Rule(self.axis, self.plugin, self.form, n_clients)

    def __reduce__(self):
        return Rule, (self.axis, self.plugin)

    cdef _bind(self, form):
        """Check a form, and set `function` and `user` to it."""
        if is_compiled(form) and not isinstance(form, LowLevelCallable):
            form = getattr(form, "ctypes", form)
            if form.argtypes is None:
                raise TypeError(
                    f"{self.name}: its ctypes function has no argtypes, "
                    "so its signature can't be checked: set them"
                )
            form = LowLevelCallable(form)
        self.form = form
        if not isinstance(form, LowLevelCallable):
            check_arguments(self.name, self.axis, form, self.state_size > 0)
            self.takes_state, self.user = True, <void*>self
            self.function = python_form(self.axis)
            return
        capsule = tuple.__getitem__(form, 0)
        cdef const char* signature = PyCapsule_GetName(capsule)
        found = "none" if signature == NULL else (<bytes>signature).decode()
        check_signature(self.name, self.axis, found, self.state_size > 0)
        self.takes_state = self.state_size > 0
        self.function = PyCapsule_GetPointer(capsule, signature)
        self.user = PyCapsule_GetContext(capsule)
        if self.user == NULL and form.user_data is not None:
            raise TypeError(f"{self.name}: the user data of its compiled form is a NULL pointer")

    def show(self, *view):
        """Set the arrays that a Python choice reads: estimates, widths, target widths."""
        self.view = view

    def __call__(self, *arguments):
        """Call the rule through the pointer that the loop calls.

        The arguments are those of the Python form, in its order.
        """
        cdef Rule rule = Rule(self.axis, self.plugin, self.form)
        cdef double[::1] state
        expected = self.arguments
        if len(arguments) != len(expected):
            raise TypeError(
                f"{self.name} takes ({', '.join(expected)}), not {len(arguments)} arguments"
            )
        if self.state_size:
            state = arguments[len(arguments) - 1]
            if state.shape[0] != self.state_size:
                raise ValueError(
                    f"{self.name} has state_size {self.state_size}, not {state.shape[0]}"
                )
            if <size_t>&state[0] % sizeof(double):
                raise ValueError(
                    f"{self.name} takes a state that begins at a multiple of 8 bytes: pass a copy"
                )
            rule.slots, rule.rows = &state[0], [np.asarray(state)]
        answer = rule._call(arguments)
        if rule.error is not None:
            raise rule.error
        return answer

    cdef _call(self, tuple arguments):
        """Call the rule as the loop would for client 0."""
        cdef double residual
        cdef const double[:, ::1] estimates, widths
        cdef const double[::1] targets
        if self.axis == "trigger":
            return self.fires(0, arguments[0], arguments[1])
        if self.axis == "weighting":
            residual = arguments[2] if self.state_size else 0.0
            return self.weight(0, arguments[0], arguments[1], residual)
        estimates, widths, targets = arguments[0], arguments[1], arguments[2]
        sizes = (estimates.shape[0], estimates.shape[1])
        same_sizes = (widths.shape[0], widths.shape[1]) == sizes
        if 0 in sizes or not same_sizes or targets.shape[0] != estimates.shape[0]:
            raise ValueError(
                f"{self.name} takes estimates and widths of the same layers × arms, "
                "and a target for each layer"
            )
        for array in arguments[:3]:
            if not np.asarray(array).flags.aligned:
                raise ValueError(
                    f"{self.name} takes arrays that begin at a multiple of 8 bytes: pass a copy"
                )
        self.show(arguments[0], arguments[1], arguments[2])
        return self.choose(
            0, <double*>&estimates[0, 0], <double*>&widths[0, 0], <double*>&targets[0],
            <int>estimates.shape[0], <int>estimates.shape[1], arguments[3],
        )

    @property
    def arguments(self):
        """The names of the arguments that the rule is called with."""
        _, usual, added = METHODS[self.axis]
        return usual + (added if self.state_size else ())

    # --- as the loop calls it ---------------------------------------------------------------------

    cdef int fires(self, int client, double gain, double elapsed) noexcept nogil:
        """Not 0 if this client asks to talk; negative if the trigger failed."""
        cdef double* state
        if self.takes_state:
            state = self.slots + <ptrdiff_t>client * self.state_size
            return (<stateful_trigger_function>self.function)(gain, elapsed, state, self.user)
        return (<trigger_function>self.function)(gain, elapsed, self.user)

    cdef double weight(
        self, int client, double norm, double sigma, double residual
    ) noexcept nogil:
        """The weight of this client's observation; NaN if the weighting failed."""
        cdef double* state
        if self.takes_state:
            state = self.slots + <ptrdiff_t>client * self.state_size
            return (<stateful_weight_function>self.function)(
                norm, sigma, residual, state, self.user
            )
        return (<weight_function>self.function)(norm, sigma, self.user)

    cdef int choose(
        self, int client, double* estimates, double* widths, double* targets, int n_layers,
        int n_arms, double draw,
    ) noexcept nogil:
        """layer·n_arms + arm that this client plays; negative if the choice failed."""
        cdef double* state
        if self.takes_state:
            state = self.slots + <ptrdiff_t>client * self.state_size
            return (<stateful_choice_function>self.function)(
                estimates, widths, targets, n_layers, n_arms, draw, state, self.user
            )
        return (<choice_function>self.function)(
            estimates, widths, targets, n_layers, n_arms, draw, self.user
        )


# --- checks, when an algorithm is made ------------------------------------------------------------

def form_of(axis, plugin):
    """The compiled form of a plugin; its Python form if it has none, or `compiled` returns None."""
    compiled = plugin.compiled() if hasattr(plugin, "compiled") else None
    return getattr(plugin, METHODS[axis][0]) if compiled is None else compiled


def checked_state_size(name, size):
    """Return `size`, or raise if it is not a number of doubles."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise TypeError(f"{name}: state_size must be a whole number of at least 0, not {size!r}")
    return size


def is_compiled(form):
    """True for a LowLevelCallable, a ctypes function, or a numba @cfunc, which holds one."""
    if isinstance(form, LowLevelCallable):
        return True
    return isinstance(getattr(form, "ctypes", form), ctypes._CFuncPtr)


def check_signature(name, axis, found, with_state):
    """Raise unless a compiled form has the signature of its axis."""
    result, usual, added = SIGNATURES[axis]
    arguments = usual + (added if with_state else [])
    expected = f"{result} ({', '.join(arguments)}, void *)"
    for last in ("void *", "double *"):  # numba may declare CPointer(float64)
        if found.replace(" ", "") == f"{result}({','.join([*arguments, last])})".replace(" ", ""):
            return
    state = f" for a plugin with state_size {'above' if with_state else 'of'} 0"
    raise TypeError(
        f"{name}: its compiled form has the signature {found!r}, it must be {expected!r}{state}"
    )


def check_arguments(name, axis, form, with_state):
    """Raise unless a Python form takes the arguments of its axis."""
    method, usual, added = METHODS[axis]
    arguments = usual + (added if with_state else ())
    if not callable(form):
        raise TypeError(
            f"{name}: {method} is {form!r}, "
            "which is neither a function nor a scipy.LowLevelCallable"
        )
    try:
        signature = inspect.signature(form)
    except ValueError:  # some callables written in C have no signature
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        raise TypeError(
            f"{name}: {method} must take ({', '.join(arguments)}), not {signature}"
        ) from None


# --- Python forms, behind a pointer like the compiled ones ----------------------------------------

cdef void* python_form(str axis):
    """The function behind which a Python form of this axis is called."""
    if axis == "trigger":
        return <void*>python_fires
    return <void*>python_weight if axis == "weighting" else <void*>python_choice



cdef row_of(Rule rule, double* state):
    """The slots that `state` points to, as an array."""
    return rule.rows[(state - rule.slots) // rule.state_size]


cdef int python_fires(double gain, double elapsed, double* state, void* user) noexcept nogil:
    with gil:
        return python_trigger(<Rule>user, gain, elapsed, state)


cdef int python_trigger(Rule rule, double gain, double elapsed, double* state) noexcept:
    try:
        if rule.state_size:
            return yes_or_no(rule.form(gain, elapsed, row_of(rule, state)))
        return yes_or_no(rule.form(gain, elapsed))
    except BaseException as error:  # the engine ends the run and raises it
        rule.error = error
        return -1


cdef int yes_or_no(value) except -1:
    """1 or 0. None, NaN and −1, by which a compiled trigger reports a failure, are errors."""
    if value is None or not value >= 0:
        raise TypeError(f"fires returned {value!r}, it must return True or False")
    return bool(value)


cdef double python_weight(
    double norm, double sigma, double residual, double* state, void* user
) noexcept nogil:
    with gil:
        return python_weighting(<Rule>user, norm, sigma, residual, state)


cdef double python_weighting(
    Rule rule, double norm, double sigma, double residual, double* state
) noexcept:
    try:
        if rule.state_size:
            return float(rule.form(norm, sigma, residual, row_of(rule, state)))
        return float(rule.form(norm, sigma))
    except BaseException as error:
        rule.error = error
        return NAN


cdef int python_choice(
    double* estimates, double* widths, double* targets, int n_layers, int n_arms,
    double draw, double* state, void* user,
) noexcept nogil:
    with gil:
        return python_policy(<Rule>user, draw, state)


cdef int python_policy(Rule rule, double draw, double* state) noexcept:
    try:
        if rule.state_size:
            return operator.index(rule.form(*rule.view, draw, row_of(rule, state)))
        return operator.index(rule.form(*rule.view, draw))
    except BaseException as error:
        rule.error = error
        return -1
