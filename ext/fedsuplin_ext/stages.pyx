"""An engine that measures where the time of a round goes, for `fsl.benchmark`.

It plays the same pulls as the engine of the loop, whose code it inherits. Around each stage it
reads the counter of the CPU (ticks.h): a call of `begin` adds what has passed to the stage that
was current. So a stage has its own time, without that of the stages inside it.

Reading the counter takes time as well, about as long as a small kernel. `cost_of_a_switch` says how
long, and each stage counts how often it was entered or returned to, so that the caller can
subtract it.

There is one stop watch for the process: only one of these engines can measure at a time.
"""

from libc.stdint cimport int32_t

from fedsuplin_ext.loop cimport Engine
from fedsuplin_ext.norms cimport KernelSet, ProofSet
from fedsuplin_ext.rules cimport Rule

cdef extern from "ticks.h":
    long long fsl_ticks() noexcept nogil

cdef enum:                           # STAGES
    OTHER                            # rewards, regret, recording
    KERNELS                          # widths, products with contexts, proofs in fixed point
    SCREENING                        # the rest of a decision
    UPDATE                           # what an observation changes
    SYNC                             # uploads, merges, downloads
    RULE                             # calls of trigger, weighting and policy
    N_STAGES

STAGES = ("other", "kernels", "screening", "update", "sync", "rule")

cdef struct Watch:
    int current                      # the stage that runs
    long long since                  # ticks when it was entered or returned to
    long long ticks[N_STAGES]
    long long intervals[N_STAGES]    # how often it was entered or returned to

cdef Watch watch
cdef KernelSet inner                 # the kernels that the timed ones call


cdef inline int begin(int stage) noexcept nogil:
    """Charge the time until now to the current stage, and make `stage` current.

    Returns the stage that was current, which `begin` gets when `stage` is over.
    """
    cdef int before = watch.current
    cdef long long now = fsl_ticks()
    watch.ticks[before] += now - watch.since
    watch.intervals[before] += 1
    watch.current, watch.since = stage, now
    return before


cdef void timed_norms(
    const double* P, ptrdiff_t ldp, const double* theta, const double* X, ptrdiff_t ldx,
    int d, int lanes, double radius, double* width, double* estimate,
) noexcept nogil:
    """The kernel `norms`, charged to KERNELS."""
    cdef int before = begin(KERNELS)
    inner.norms(P, ldp, theta, X, ldx, d, lanes, radius, width, estimate)
    begin(before)


cdef void timed_estimates(
    const double* theta, const double* X, ptrdiff_t ldx, int d, int lanes, double* estimate
) noexcept nogil:
    """The kernel `estimates`, charged to KERNELS."""
    cdef int before = begin(KERNELS)
    inner.estimates(theta, X, ldx, d, lanes, estimate)
    begin(before)


cdef void timed_products(
    const double* const* vectors, int n, const double* X, ptrdiff_t ldx, int d, int lanes,
    double* out,
) noexcept nogil:
    """The kernel `products`, charged to KERNELS."""
    cdef int before = begin(KERNELS)
    inner.products(vectors, n, X, ldx, d, lanes, out)
    begin(before)


cdef void timed_quantise(
    const double* X, ptrdiff_t ldx, int lanes, int d, int32_t* pairs, float* singles, int to
) noexcept nogil:
    """The kernel `quantise` of the proofs, charged to KERNELS."""
    cdef int before = begin(KERNELS)
    inner.proofs.quantise(X, ldx, lanes, d, pairs, singles, to)
    begin(before)


cdef void timed_forms(
    const int32_t* panel, const int32_t* pairs, const float* singles, int lanes, int d,
    float* form,
) noexcept nogil:
    """The kernel `forms` of the proofs, charged to KERNELS."""
    cdef int before = begin(KERNELS)
    inner.proofs.forms(panel, pairs, singles, lanes, d, form)
    begin(before)


cdef double timed_largest_form(const float* form, const double* out, int lanes) noexcept nogil:
    """The kernel `largest_form` of the proofs, charged to KERNELS."""
    cdef int before = begin(KERNELS)
    cdef double largest = inner.proofs.largest_form(form, out, lanes)
    begin(before)
    return largest


cdef class TimedRule(Rule):
    """A rule whose calls are charged to RULE."""

    cdef int fires(self, int client, double gain, double elapsed) noexcept nogil:
        cdef int before = begin(RULE), answer
        answer = Rule.fires(self, client, gain, elapsed)
        begin(before)
        return answer

    cdef double weight(
        self, int client, double norm, double sigma, double residual
    ) noexcept nogil:
        cdef int before = begin(RULE)
        cdef double answer = Rule.weight(self, client, norm, sigma, residual)
        begin(before)
        return answer

    cdef int choose(
        self, int client, double* estimates, double* widths, double* targets, int n_layers,
        int n_arms, double draw,
    ) noexcept nogil:
        cdef int before = begin(RULE), answer
        answer = Rule.choose(
            self, client, estimates, widths, targets, n_layers, n_arms, draw
        )
        begin(before)
        return answer


cdef TimedRule timed(Rule rule, int n_clients):
    """The same rule with fresh state, timed; None where there is no rule."""
    if rule is None:
        return None
    cdef TimedRule copy = TimedRule(rule.axis, rule.plugin, rule.form, n_clients)
    copy.view = rule.view
    return copy


cdef class StageEngine(Engine):
    """An engine with a stop watch. Between `start` and `stop` its stages are timed."""

    cdef const KernelSet* plain      # the kernels of the engine
    cdef KernelSet timed_kernels     # those that screen are a part of SCREENING
    cdef ProofSet timed_proofs

    def __init__(self, algorithm, **keywords):
        super().__init__(algorithm, **keywords)
        self.plain = self.work.k
        self.timed_kernels = self.plain[0]
        self.timed_kernels.norms = timed_norms
        self.timed_kernels.products = timed_products
        self.timed_kernels.estimates = timed_estimates
        self.timed_proofs = self.timed_kernels.proofs[0]
        self.timed_proofs.quantise = timed_quantise
        self.timed_proofs.forms = timed_forms
        self.timed_proofs.largest_form = timed_largest_form
        self.timed_kernels.proofs = &self.timed_proofs
        self.trigger = timed(self.trigger, self.n_clients)
        self.weighting = timed(self.weighting, self.n_clients)
        self.policy = timed(self.policy, self.n_clients)

    def start(self):
        """Set the stop watch to zero and start it."""
        global inner
        cdef int stage
        inner = self.plain[0]
        self.work.k = &self.timed_kernels
        for stage in range(N_STAGES):
            watch.ticks[stage], watch.intervals[stage] = 0, 0
        watch.current, watch.since = OTHER, fsl_ticks()

    def stop(self):
        """Stop the watch; returns ticks and numbers of intervals by stage."""
        begin(OTHER)
        return {
            name: (watch.ticks[stage], watch.intervals[stage])
            for stage, name in enumerate(STAGES)
        }

    cdef int decide(
        self, int client, const double* X, const unsigned char* mask, int* layer
    ) noexcept nogil:
        cdef int before = begin(SCREENING), arm
        arm = Engine.decide(self, client, X, mask, layer)
        begin(before)
        return arm

    cdef int learn(self, int client, int layer, double reward, double sigma) noexcept nogil:
        cdef int before = begin(UPDATE), status
        status = Engine.learn(self, client, layer, reward, sigma)
        begin(before)
        return status

    cdef int sync_one(self, int client) noexcept nogil:
        cdef int before = begin(SYNC), status
        status = Engine.sync_one(self, client)
        begin(before)
        return status

    cdef int push(self, int client) noexcept nogil:
        cdef int before = begin(SYNC), status
        status = Engine.push(self, client)
        begin(before)
        return status

    cdef int sync_marked(self, long long round) noexcept nogil:
        cdef int before = begin(SYNC), status
        status = Engine.sync_marked(self, round)
        begin(before)
        return status


def cost_of_a_switch(long repeats=100_000):
    """The ticks that one interval costs by itself: the least of several means."""
    cdef long i
    cdef long long start
    cdef double best = -1.0, mean
    for _ in range(10):
        start = fsl_ticks()
        with nogil:
            for i in range(repeats):
                begin(OTHER)
        mean = <double>(fsl_ticks() - start) / repeats
        if best < 0 or mean < best:
            best = mean
    return best
