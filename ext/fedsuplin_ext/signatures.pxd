# What a plugin decides each pull, as C functions: cimport these types to have the C compiler check a plugin of your own.
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
