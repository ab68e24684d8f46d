# The C functions by which a plugin decides at each pull. cimport these types to have the C compiler
# check a plugin of your own.
#
# The second form of each is for a plugin with state: `state` points to the doubles of this client.
# `user` points to the parameters, as doubles. The engine calls the functions without the GIL, so
# they must not need it.

ctypedef int (*trigger_function)(double gain, double elapsed, void* user) noexcept nogil
ctypedef int (*stateful_trigger_function)(
    double gain, double elapsed, double* state, void* user
) noexcept nogil

ctypedef double (*weight_function)(double norm, double sigma, void* user) noexcept nogil
ctypedef double (*stateful_weight_function)(
    double norm, double sigma, double residual, double* state, void* user
) noexcept nogil

# Estimates and widths are n_layers × n_arms, target widths n_layers; none may be written to. An arm
# that is not available has the estimate −∞. Returns layer·n_arms + arm.
ctypedef int (*choice_function)(
    double* estimates, double* widths, double* targets, int n_layers, int n_arms,
    double draw, void* user,
) noexcept nogil
ctypedef int (*stateful_choice_function)(
    double* estimates, double* widths, double* targets, int n_layers, int n_arms,
    double draw, double* state, void* user,
) noexcept nogil
