/* A matrix in 16-bit fixed point, for the proofs of proofs_body.h, where each step is derived. */
#ifndef FEDSUPLIN_PROOFS_H
#define FEDSUPLIN_PROOFS_H

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define FSL_LONGEST (1 + 1e-5)      /* N: no context is longer; problems allow 1 + 1e-6 */
#define FSL_CONTEXT_SCALE 32000.0   /* Z: below 2¹⁵/N */
#define FSL_LARGEST_ENTRY 32000.0   /* of t, below 2¹⁵ */
#define FSL_ROW_NORM 64000.0        /* of t, below 2³¹/(ZN) */
#define FSL_SINGLE_ROUNDING 1.2e-7  /* u, a little above 2⁻²³ */

typedef struct {
    double centre; /* c */
    double scale;  /* SZ: the forms are this many times xᵀT x */
    double error;  /* xᵀP x ≤ cN² + form/scale + error */
} fsl_fixed_point;

/* How many pairs of 16-bit integers the rows of t take: blocks of four rows up to the diagonal. */
static inline ptrdiff_t fsl_panel_size(int d)
{
    ptrdiff_t n = 0;
    for (int i = 0; i < d; i += 4)
        n += 4 * (i / 2 + 2);
    return n;
}

/* T_ij of P: E_ii on the diagonal, 2E_ij left of it, 0 elsewhere. */
static inline double fsl_entry(const double *P, ptrdiff_t ldp, int d, double centre, int i, int j)
{
    if (i >= d || j > i)
        return 0.0;
    return i == j ? P[i * ldp + i] - centre : 2.0 * P[i * ldp + j];
}

/* P as t in blocks of four rows, pairs of columns side by side. Returns 0 where P can't be scaled:
 * an entry is not finite, or all of them are 0 or too small. */
static inline int fsl_fix_point(const double *P, ptrdiff_t ldp, int d, int32_t *panel,
                         fsl_fixed_point *fixed)
{
    double centre = 0.0, largest = 0.0, longest = 0.0, total = 0.0, scale;
    for (int i = 0; i < d; i++)
        centre += P[i * ldp + i] / d;
    for (int i = 0; i < d; i++) {
        double row = 0.0;
        for (int j = 0; j <= i; j++) {
            const double entry = fsl_entry(P, ldp, d, centre, i, j);
            if (!(fabs(entry) < 1e100))
                return 0;
            largest = fabs(entry) > largest ? fabs(entry) : largest;
            row += entry * entry;
        }
        longest = row > longest ? row : longest;
        total += row;
    }
    largest += DBL_EPSILON * centre; /* P = cI: any scale will do */
    longest = sqrt(longest) + DBL_EPSILON * centre;
    scale = FSL_LARGEST_ENTRY / largest;
    scale = FSL_ROW_NORM / longest < scale ? FSL_ROW_NORM / longest : scale;
    if (!(centre > 0.0 && scale > 1e-100 && scale < 1e100))
        return 0;
    for (int i = 0; i < d; i += 4)
        for (int k = 0; k < i / 2 + 2; k++)
            for (int r = i; r < i + 4; r++) {
                const double low = scale * fsl_entry(P, ldp, d, centre, r, 2 * k);
                const double high = scale * fsl_entry(P, ldp, d, centre, r, 2 * k + 1);
                *panel++ = (int32_t)(((uint32_t)(int32_t)high << 16) |
                                     ((uint32_t)(int32_t)low & 0xFFFFu));
            }
    const double n = FSL_LONGEST, norm = sqrt(total) * (1 + 1e-9);
    const double cut = sqrt(d * (d + 1.0) / 2) / scale; /* ‖F‖ */
    const double single = 2 * (d + 4) * FSL_SINGLE_ROUNDING;
    fixed->centre = centre;
    fixed->scale = scale * FSL_CONTEXT_SCALE;
    fixed->error = n * n * cut + n * norm * sqrt((double)d) / FSL_CONTEXT_SCALE +
                   single * n * n * (norm + cut) + 2 * d * 2.6e-29 / fixed->scale;
    return 1;
}

#endif
