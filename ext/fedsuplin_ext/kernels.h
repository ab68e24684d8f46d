/* The few loops that take most of the time, written with explicit vectors and compiled once for
 * each instruction set.
 *
 * Legend: d dimension; P = A⁻¹ (or (A+ΔA)⁻¹), full and symmetric, row i at P + i*ldp; X the
 * contexts of a round as d rows of `lanes` arms (the arms are the SIMD lanes), row i at X + i*ldx;
 * theta = θ̂.
 * ldp, ldx and lanes are multiples of the `lanes` of the set in use, padding holds zeros, and every
 * array starts on a cache line or is read with unaligned loads.
 *
 * This file declares a set of kernels. kernels_body.h defines them; kernels_dispatch.h compiles the
 * sets and finds one by name.
 */
#ifndef FEDSUPLIN_KERNELS_H
#define FEDSUPLIN_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* GCC and Clang have vector types. MSVC does not, and Clang in its place (clang-cl) can't ask which
 * instructions the CPU has. There, and with FEDSUPLIN_PLAIN, everything is plain C with vectors of
 * length 1; the arms played and the contexts drawn are the same. */
#if defined(__GNUC__) && !defined(FEDSUPLIN_PLAIN)
#define FSL_VECTORS 1
#else
#define FSL_VECTORS 0
#endif

/* More sets of kernels, for the CPUs that have AVX2 or AVX-512. */
#if FSL_VECTORS && defined(__x86_64__)
#define FSL_AVX2 1
#define FSL_AVX512 1
#else
#define FSL_AVX2 0
#define FSL_AVX512 0
#endif

/* The sets split512 have vectors that no register holds. Compilers warn of how these are passed,
 * but everything that takes one is inline. GCC warns at the end of the file, so there is no pop. */
#if FSL_AVX2
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#define FSL_LARGE 128 /* from here on a matrix is too large for the nearest caches */

#if defined(_MSC_VER)
#define FSL_RESTRICT __restrict /* `restrict` only with /std:c11 */
#else
#define FSL_RESTRICT restrict
#endif

/* Proofs in fixed point, derived in proofs_body.h. */
typedef struct {
    int lanes; /* arms are padded to a multiple of this: a vector of 32-bit integers */
    /* Contexts in 16-bit integers, in pairs of coordinates, and in single precision. */
    void (*quantise)(const double *X, ptrdiff_t ldx, int lanes, int d, int32_t *pairs,
                     float *singles, int to);
    /* form[a] = xᵀT x times the scale of the panel, for all arms. */
    void (*forms)(const int32_t *panel, const int32_t *pairs, const float *singles, int lanes,
                  int d, float *form);
    /* The largest form of the kept arms; lanes is a multiple of 4. */
    double (*largest_form)(const float *form, const double *out, int lanes);
} fsl_proof_set;

/* One layer in which no arm can be wide, if its spikes show it. */
typedef struct {
    const double *estimates; /* lanes: θ̂ᵀx */
    const double *spikes;    /* n_spikes × lanes: uᵀx of each direction u */
    int n_spikes;
    double room;   /* Σ (uᵀx)² must be below this */
    double within; /* arms this far below the best are kept: 2w̄ */
} fsl_quiet_layer;

typedef struct {
    const char *name;
    int lanes; /* arms, and rows of matrices, are padded to a multiple of this */
    const fsl_proof_set *proofs;
    /* d rows of n_arms contexts as rows of `lanes`. */
    void (*pad)(const double *X, int n_arms, int d, int lanes, double *to);
    /* width[a] = radius·√(x_aᵀ P x_a) and estimate[a] = θ̂ᵀ x_a for all arms. */
    void (*norms)(const double *P, ptrdiff_t ldp, const double *theta, const double *X,
                  ptrdiff_t ldx, int d, int lanes, double radius, double *width, double *estimate);
    /* out[g·lanes + a] = v_gᵀ x_a for n vectors and all arms. */
    void (*products)(const double *const *vectors, int n, const double *X, ptrdiff_t ldx, int d,
                     int lanes, double *out);
    /* estimate[a] = θ̂ᵀ x_a for all arms. */
    void (*estimates)(const double *theta, const double *X, ptrdiff_t ldx, int d, int lanes,
                      double *estimate);
    /* Of the arms, out[a] is 0 for those that are kept, −∞ for the others and for the padding.
     *
     * Layer 0: keep a where r̂ + w ≥ max(r̂ − w), and where no kept arm is wider than the target,
     * those within 2w̄ of the best. Returns the largest width of the arms kept by the first of
     * these, and writes how many are left. */
    double (*screen_first)(const double *estimate, const double *width, double target,
                           double *out, int lanes, int *left);
    /* Screen by estimates, layer by layer: in each, keep the arms within 2w̄ of the best. Stops
     * before the first layer whose spikes do not show that no kept arm is wide; returns how many
     * layers were screened, and writes how many arms are left. */
    int (*screen)(const fsl_quiet_layer *layers, int n, double *out, int lanes, int *left);
    /* Keep the arms within so much of the best estimate; returns how many are left. */
    int (*keep_near_best)(const double *estimate, double within, double *out, int lanes);
    /* The first kept arm with a value above `above` and within a relative `tie` of the largest, or
     * -1. */
    int (*first_of_largest)(const double *value, double above, double tie, const double *out,
                            int lanes);
    /* Copy the `left` kept columns side by side, with zeros up to to_lanes, which are fewer than
     * lanes. source[b] is the b-th kept one. In place is safe: a column moves to the left, and the
     * new rows are shorter than the old ones. */
    void (*move_together)(const double *X, ptrdiff_t ldx, int lanes, int d, const double *out,
                          const int *source, int left, double *to, int to_lanes);
    /* y = P x; x and y have ldp entries, and those of x behind d are finite. */
    void (*matvec)(const double *P, ptrdiff_t ldp, const double *x, int d, double *y);
    /* result = from + sign·u uᵀ, sign = ±1; result may be `from`. Symmetric to the last bit. */
    void (*add_outer)(double *result, const double *from, ptrdiff_t ldp, const double *u,
                      double sign, int d);
    /* The same for the upper triangle only; what is below the diagonal becomes stale. */
    void (*add_outer_upper)(double *result, const double *from, ptrdiff_t ldp, const double *u,
                            double sign, int d);
    /* xᵀy over n entries, n a multiple of the set's lanes. */
    double (*dot)(const double *x, const double *y, ptrdiff_t n);
    /* A ← A⁻¹, full, from the upper triangle of A, and *log_det = ln det A; u is scratch of ldp
     * entries. Returns 0, or i + 1 where pivot i is not positive. */
    int (*invert)(double *A, ptrdiff_t ldp, int d, double *u, double *log_det);
    /* 1 if every eigenvalue of P is below `bound`, which the pivots of bound·I − P show; A is
     * scratch of d × ldp entries, u of ldp. */
    int (*below)(const double *P, ptrdiff_t ldp, int d, double bound, double *A, double *u);
    /* n times twelve independent multiply-adds of whole vectors, the most that this CPU can do.
     * Returns the number of flops. */
    double (*peak)(long n, double *sink);
} fsl_kernel_set;

#endif
