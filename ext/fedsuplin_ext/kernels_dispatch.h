/* Compiles the kernels for each instruction set and finds a set by name. Only for norms.pyx. */
#ifndef FEDSUPLIN_KERNELS_DISPATCH_H
#define FEDSUPLIN_KERNELS_DISPATCH_H

#include <math.h>
#include <string.h>

#include "kernels.h"

#define FSL_SUFFIX generic
#if FSL_VECTORS
#define FSL_WIDTH 2
#else
#define FSL_WIDTH 1
#endif
#define FSL_TARGET
#include "kernels_body.h"

#if FSL_AVX2
#define FSL_SUFFIX avx2
#define FSL_WIDTH 4
#define FSL_TARGET __attribute__((target("avx2,fma")))
#include "kernels_body.h"
#endif

/* The set of that name, or NULL where this build or this CPU does not have it. */
static const fsl_kernel_set *fsl_kernels_named(const char *name)
{
#if FSL_AVX2
    if (strcmp(name, "avx2") == 0) {
        const int runs = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        return runs ? &fsl_set_avx2 : NULL;
    }
#endif
    return strcmp(name, "generic") == 0 ? &fsl_set_generic : NULL;
}

#endif
