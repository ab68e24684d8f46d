# From a plugin to a function pointer; the types of these pointers are in signatures.pxd.

cdef class Rule:
    cdef void* function
    cdef void* user
    cdef double* slots                # n_clients × state_size
    cdef bint takes_state             # `function` has the form with state
    cdef object plugin, form          # the plugin; what `function` and `user` point into
    cdef object view                  # for a choice in Python: the arrays that the engine writes
    cdef list rows                    # for a Python form: by client, its slots as an array
    cdef readonly str axis            # "trigger", "weighting" or "policy"
    cdef readonly str name
    cdef readonly int state_size
    cdef readonly bint reads_norm     # of a weighting: its answer depends on the norm
    cdef readonly object state        # n_clients × state_size, or None
    cdef readonly object error        # what a Python form raised

    cdef _bind(self, form)
    cdef _call(self, tuple arguments)
    cdef int fires(self, int client, double gain, double elapsed) noexcept nogil
    cdef double weight(self, int client, double norm, double sigma, double residual) noexcept nogil
    cdef int choose(
        self, int client, double* estimates, double* widths, double* targets, int n_layers,
        int n_arms, double draw,
    ) noexcept nogil
