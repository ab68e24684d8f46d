# From a plugin to a function pointer; the signatures are in signatures.pxd.

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
