/* Compiles the drawing of contexts for each instruction set and finds a set by name. Only for
 * draws.pyx. */
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

typedef struct {
    const char *name;
    /* n normals, n a multiple of 2·FSL_STREAMS. */
    void (*normals)(uint64_t *state, double *out, ptrdiff_t n);
    /* The columns of `raw` (d × n_arms) scaled to length 1, or to `lengths`, in `out`, which may be
     * `raw`. */
    void (*scale_columns)(const double *raw, const double *lengths, int d, int n_arms, double *out);
} fsl_draw_set;

#if FSL_VECTORS
typedef double fsl_two __attribute__((vector_size(16), aligned(8), may_alias));
#endif
#if FSL_AVX2
typedef double fsl_four __attribute__((vector_size(32), aligned(8), may_alias));
#endif

#if FSL_AVX2
#include <immintrin.h>
#endif

#define FSL_AVX512_LOGIC 0
#define FSL_SUFFIX generic
#define FSL_NAME "generic"
#if FSL_VECTORS
#define FSL_WIDTH 2
#else
#define FSL_WIDTH 1
#endif
#define FSL_TARGET
#include "draws_body.h"

#if FSL_AVX2
#define FSL_SUFFIX avx2
#define FSL_NAME "avx2"
#define FSL_WIDTH 4
#define FSL_TARGET __attribute__((target("avx2")))
#include "draws_body.h"

#undef FSL_AVX512_LOGIC
#define FSL_AVX512_LOGIC 1
#define FSL_SUFFIX avx512
#define FSL_NAME "avx512"
#define FSL_WIDTH 8
#define FSL_TARGET __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw")))
#include "draws_body.h"

/* The eight-wide body for AVX2, where the compiler splits each vector in two: slower than avx2, and
 * only there so that the eight-wide code can be tested on CPUs without AVX-512. */
#undef FSL_AVX512_LOGIC
#define FSL_AVX512_LOGIC 0
#define FSL_SUFFIX split512
#define FSL_NAME "split512"
#define FSL_WIDTH 8
#define FSL_TARGET __attribute__((target("avx2")))
#include "draws_body.h"
#endif

/* The set of that name, or NULL where this build or this CPU does not have it. */
static const fsl_draw_set *fsl_draws_named(const char *name)
{
#if FSL_AVX2
    if (strcmp(name, "avx512") == 0) {
        const int runs = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
        return runs ? &fsl_draws_avx512 : NULL;
    }
    if (strcmp(name, "avx2") == 0)
        return __builtin_cpu_supports("avx2") ? &fsl_draws_avx2 : NULL;
    if (strcmp(name, "split512") == 0)
        return __builtin_cpu_supports("avx2") ? &fsl_draws_split512 : NULL;
#endif
    return strcmp(name, "generic") == 0 ? &fsl_draws_generic : NULL;
}

#define FSL_TURNS 6 /* of the permutation: an even number, so that both halves end in their place */
#define FSL_WALKERS 64

/* One Feistel network on words of left + right bits. The two halves take turns. */
static inline uint64_t fsl_mix(uint64_t x, int left, int right, const uint64_t *keys)
{
    for (int k = 0; k < FSL_TURNS; k++) {
        const int low = k % 2 ? left : right, high = k % 2 ? right : left;
        const uint64_t tail = x & ((1ULL << low) - 1);
        uint64_t f = tail + keys[k]; /* mixed by the finaliser of SplitMix64 */
        f = (f ^ (f >> 30)) * 0xBF58476D1CE4E5B9ULL;
        f = (f ^ (f >> 27)) * 0x94D049BB133111EBULL;
        f ^= f >> 31;
        x = (tail << high) | ((x >> low) ^ (f & ((1ULL << high) - 1)));
    }
    return x;
}

/* The images of n numbers from `start` on under a keyed permutation of 0..size−1. The network
 * permutes the next power of two; a value outside is mixed again until it falls inside. Many walk
 * at once: one alone would wait for each multiplication, and for each branch. */
static void fsl_permute(uint64_t start, ptrdiff_t n, uint64_t size, int left, int right,
                        const uint64_t *keys, int64_t *out)
{
    uint64_t value[FSL_WALKERS];
    int place[FSL_WALKERS];
    for (; n > 0; n -= FSL_WALKERS, start += FSL_WALKERS, out += FSL_WALKERS) {
        int walking = n < FSL_WALKERS ? (int)n : FSL_WALKERS;
        for (int i = 0; i < walking; i++) {
            value[i] = start + i;
            place[i] = i;
        }
        while (walking > 0) {
            int outside = 0;
            for (int i = 0; i < walking; i++)
                value[i] = fsl_mix(value[i], left, right, keys);
            for (int i = 0; i < walking; i++) {
                const uint64_t x = value[i];
                const int at = place[i];
                out[at] = (int64_t)x;
                value[outside] = x;
                place[outside] = at;
                outside += x >= size;
            }
            walking = outside;
        }
    }
}

#endif
