/* The few loops that take most of the time, written with explicit vectors and compiled once for
 * each instruction set.
 *
 * Legend: d dimension; P = A⁻¹ (or (A+ΔA)⁻¹), full and symmetric, row i at P + i*ldp; X the
 * contexts of a round as d rows of `lanes` arms (the arms are the SIMD lanes), row i at X + i*ldx;
 * theta = θ̂.
 * ldp, ldx and lanes are multiples of FSL_LANES, padding holds zeros, and every array starts on a
 * 32-byte boundary or is read with unaligned loads.
 *
 * This file declares a set of kernels. kernels_body.h defines them; kernels_dispatch.h compiles the
 * sets and finds one by name.
 */
#ifndef FEDSUPLIN_KERNELS_H
#define FEDSUPLIN_KERNELS_H

#include <stddef.h>

#define FSL_LANES 4

/* GCC and Clang have vector types. MSVC does not, and Clang in its place (clang-cl) can't ask which
 * instructions the CPU has. There, and with FEDSUPLIN_PLAIN, everything is plain C with vectors of
 * length 1; the arms played and the contexts drawn are the same. */
#if defined(__GNUC__) && !defined(FEDSUPLIN_PLAIN)
#define FSL_VECTORS 1
#else
#define FSL_VECTORS 0
#endif

/* A second set of kernels, for the CPUs that have AVX2. */
#if FSL_VECTORS && defined(__x86_64__)
#define FSL_AVX2 1
#else
#define FSL_AVX2 0
#endif

#if defined(_MSC_VER)
#define FSL_RESTRICT __restrict /* `restrict` only with /std:c11 */
#else
#define FSL_RESTRICT restrict
#endif

typedef struct {
    const char *name;
    /* width[a] = radius·√(x_aᵀ P x_a) and estimate[a] = θ̂ᵀ x_a for all arms. */
    void (*norms)(const double *P, ptrdiff_t ldp, const double *theta, const double *X,
                  ptrdiff_t ldx, int d, int lanes, double radius, double *width, double *estimate);
    /* estimate[a] = θ̂ᵀ x_a for all arms. */
    void (*estimates)(const double *theta, const double *X, ptrdiff_t ldx, int d, int lanes,
                      double *estimate);
    /* The largest value[a] + sign·width[a] of the kept arms; out[a] is 0 for those, else −∞. */
    double (*largest)(const double *value, const double *width, double sign, const double *out,
                      int lanes);
    /* Drop the kept arms with value[a] + sign·width[a] < threshold; returns how many are left. */
    int (*keep)(const double *value, const double *width, double sign, double threshold,
                double *out, int lanes);
    /* y = P x; y has ldp entries. */
    void (*matvec)(const double *P, ptrdiff_t ldp, const double *x, int d, double *y);
    /* result = from + sign·u uᵀ, sign = ±1; result may be `from`. Symmetric to the last bit. */
    void (*add_outer)(double *result, const double *from, ptrdiff_t ldp, const double *u,
                      double sign, int d);
    /* The same for the upper triangle only; what is below the diagonal becomes stale. */
    void (*add_outer_upper)(double *result, const double *from, ptrdiff_t ldp, const double *u,
                            double sign, int d);
    /* xᵀy over n entries, n a multiple of FSL_LANES. */
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
