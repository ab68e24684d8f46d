/* Compiles the drawing of contexts for each instruction set and picks one. Only for draws.pyx. */
#ifndef FEDSUPLIN_DRAWS_DISPATCH_H
#define FEDSUPLIN_DRAWS_DISPATCH_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels.h"

#if defined(_MSC_VER) && !defined(__clang__)
#pragma fp_contract(off) /* elsewhere setup.py passes -ffp-contract=off */
#endif

#define FSL_STREAMS 8

#define FSL_SUFFIX generic
#if FSL_VECTORS
#define FSL_WIDTH 2
#else
#define FSL_WIDTH 1
#endif
#define FSL_TARGET
#include "draws_body.h"

#if FSL_AVX2
#define FSL_SUFFIX avx2
#define FSL_WIDTH 4
#define FSL_TARGET __attribute__((target("avx2")))
#include "draws_body.h"
#endif

static int fsl_draws_wide(void)
{
#if FSL_AVX2
    return __builtin_cpu_supports("avx2") != 0;
#else
    return 0;
#endif
}

static void fsl_normals(int wide, uint64_t *state, double *out, ptrdiff_t n)
{
#if FSL_AVX2
    if (wide) {
        fsl_normals_avx2(state, out, n);
        return;
    }
#endif
    (void)wide;
    fsl_normals_generic(state, out, n);
}

static void fsl_scale_columns(int wide, const double *raw, const double *lengths, int d, int n_arms,
                              int lanes, double *out)
{
#if FSL_AVX2
    if (wide) {
        fsl_scale_columns_avx2(raw, lengths, d, n_arms, lanes, out);
        return;
    }
#endif
    (void)wide;
    fsl_scale_columns_generic(raw, lengths, d, n_arms, lanes, out);
}

/* The image of x under a keyed permutation of 0..size−1. A Feistel network permutes the next power
 * of two; a value outside is permuted again until it falls inside. The two halves have `left` and
 * `right` bits and take turns. */
static uint64_t fsl_permuted(uint64_t x, uint64_t size, int left, int right, const uint64_t *keys,
                             int n_keys)
{
    do {
        int low = right, high = left;
        for (int k = 0; k < n_keys; k++) {
            const uint64_t tail = x & ((1ULL << low) - 1);
            uint64_t f = tail + keys[k]; /* mixed by the finaliser of SplitMix64 */
            f = (f ^ (f >> 30)) * 0xBF58476D1CE4E5B9ULL;
            f = (f ^ (f >> 27)) * 0x94D049BB133111EBULL;
            f ^= f >> 31;
            x = (tail << high) | ((x >> low) ^ (f & ((1ULL << high) - 1)));
            const int swap = low;
            low = high;
            high = swap;
        }
    } while (x >= size);
    return x;
}

#endif
