/* Compiles the kernels for each instruction set and finds a set by name. Only for norms.pyx. */
#ifndef FEDSUPLIN_KERNELS_DISPATCH_H
#define FEDSUPLIN_KERNELS_DISPATCH_H

#include <math.h>
#include <string.h>

#include "kernels.h"
#include "proofs.h"

#if FSL_AVX2
#include <immintrin.h>
#endif

#if !FSL_AVX2
static inline int32_t fsl_low(int32_t pair) { return (int16_t)(pair & 0xFFFF); }
static inline int32_t fsl_high(int32_t pair) { return (int16_t)((uint32_t)pair >> 16); }
#endif

#define FSL_SUFFIX generic
#define FSL_TARGET
#define FSL_MADD (FSL_AVX2 ? 128 : 0)
#include "proofs_body.h"

#define FSL_SUFFIX generic
#if FSL_VECTORS
#define FSL_WIDTH 2
#else
#define FSL_WIDTH 1
#endif
#define FSL_TARGET
#define FSL_PROOFS fsl_proofs_generic
#define FSL_X86 (FSL_AVX2 ? 128 : 0)
#include "kernels_body.h"

#if FSL_AVX2
#define FSL_TARGET_AVX2 __attribute__((target("avx2,fma")))

#define FSL_SUFFIX avx2
#define FSL_TARGET FSL_TARGET_AVX2
#define FSL_MADD 256
#include "proofs_body.h"

/* For CPUs with AVX-VNNI and without AVX-512; not every compiler can ask for it. */
#if !defined(__clang__) && __GNUC__ >= 12
#define FSL_AVXVNNI 1
#define FSL_SUFFIX avxvnni
#define FSL_TARGET __attribute__((target("avx2,fma,avxvnni")))
#define FSL_MADD 257
#include "proofs_body.h"
#else
#define FSL_AVXVNNI 0
#endif

#define FSL_SUFFIX avx2
#define FSL_WIDTH 4
#define FSL_TARGET FSL_TARGET_AVX2
#define FSL_PROOFS fsl_proofs_avx2
#if FSL_AVXVNNI
#define FSL_BEST_PROOFS fsl_proofs_avxvnni
#endif
#define FSL_X86 256
#include "kernels_body.h"

/* The eight-wide kernels on a CPU with AVX2, whose vectors the compiler splits: slower than avx2,
 * but the logic of avx512 can be tested everywhere. */
#define FSL_SUFFIX split512
#define FSL_WIDTH 8
#define FSL_TARGET FSL_TARGET_AVX2
#define FSL_PROOFS fsl_proofs_avx2
#define FSL_X86 0
#include "kernels_body.h"
#endif

#if FSL_AVX512
#define FSL_TARGET_AVX512 __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,fma")))

#define FSL_SUFFIX avx512
#define FSL_TARGET FSL_TARGET_AVX512
#define FSL_MADD 512
#include "proofs_body.h"

#define FSL_SUFFIX avx512vnni
#define FSL_TARGET __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx512vnni,fma")))
#define FSL_MADD 513
#include "proofs_body.h"

#define FSL_SUFFIX avx512
#define FSL_WIDTH 8
#define FSL_TARGET FSL_TARGET_AVX512
#define FSL_PROOFS fsl_proofs_avx512
#define FSL_BEST_PROOFS fsl_proofs_avx512vnni
#define FSL_X86 512
#include "kernels_body.h"
#endif

/* The set of that name, or NULL where this build or this CPU does not have it. */
static const fsl_kernel_set *fsl_kernels_named(const char *name)
{
#if FSL_AVX512
    if (strcmp(name, "avx512") == 0) {
        const int runs = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
        const int best = __builtin_cpu_supports("avx512vnni");
        return !runs ? NULL : best ? &fsl_best_set_avx512 : &fsl_set_avx512;
    }
#endif
#if FSL_AVX2
    if (strcmp(name, "avx2") == 0 || strcmp(name, "split512") == 0) {
        if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")))
            return NULL;
#if FSL_AVXVNNI
        if (name[0] == 'a' && __builtin_cpu_supports("avxvnni"))
            return &fsl_best_set_avx2;
#endif
        return name[0] == 'a' ? &fsl_set_avx2 : &fsl_set_split512;
    }
#endif
    return strcmp(name, "generic") == 0 ? &fsl_set_generic : NULL;
}

#endif
