# What a plugin decides each pull, as function pointers. Third parties may cimport the signatures.
#
# The second form of each is for a plugin with state: `state` points to this client's doubles. `user` points to the
# parameters, as doubles. The engine calls them without the GIL, so they must not need it.

ctypedef int (*trigger_function)(double gain, double elapsed, void* user) noexcept nogil
ctypedef int (*stateful_trigger_function)(double gain, double elapsed, double* state, void* user) noexcept nogil

ctypedef double (*weight_function)(double norm, double sigma, void* user) noexcept nogil
ctypedef double (*stateful_weight_function)(double norm, double sigma, double residual, double* state, void* user) noexcept nogil

# estimates and widths are n_layers × n_arms, target widths n_layers, and none is to be written to; an arm that is not there
# has the estimate −∞. Returns layer·n_arms + arm.
ctypedef int (*choice_function)(double* estimates, double* widths, double* targets, int n_layers, int n_arms, double draw, void* user) noexcept nogil
ctypedef int (*stateful_choice_function)(double* estimates, double* widths, double* targets, int n_layers, int n_arms, double draw, double* state, void* user) noexcept nogil

cdef class Rule:
    cdef void* function
    cdef void* user
    cdef double* slots                # n_clients × state_size
    cdef bint takes_state             # `function` has the second form
    cdef object plugin, form          # whose it is; what `function` and `user` point into
    cdef object view                  # of a choice in Python: the arrays that the engine writes into
    cdef list rows                    # of a Python form: by client, its slots as an array
    cdef readonly str axis            # "trigger", "weighting" or "policy"
    cdef readonly str name
    cdef readonly int state_size
    cdef readonly object state        # n_clients × state_size, or None
    cdef readonly object error        # what a Python form raised

    cdef _take(self, form)
    cdef _called(self, tuple arguments)
    cdef int fires(self, int client, double gain, double elapsed) noexcept nogil
    cdef double weight(self, int client, double norm, double sigma, double residual) noexcept nogil
    cdef int choose(self, int client, double* estimates, double* widths, double* targets, int n_layers, int n_arms, double draw) noexcept nogil
