/* A clock that is cheap enough to be read several times in a round: the CPU's own counter where
   there is one, else the processor time of the C library. Shares need no unit, so it has none. */
#ifndef FSL_TICKS_H
#define FSL_TICKS_H

#include <time.h>

#if defined(_MSC_VER) && (defined(_M_X64) || defined(_M_IX86))
#include <intrin.h>
#define FSL_HAS_TSC 1
#elif (defined(__GNUC__) || defined(__clang__)) && (defined(__x86_64__) || defined(__i386__))
#include <x86intrin.h>
#define FSL_HAS_TSC 1
#endif

static inline long long fsl_ticks(void)
{
#if defined(FSL_HAS_TSC)
    return (long long)__rdtsc();
#elif defined(__GNUC__) && defined(__aarch64__)
    long long now;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
    return now;
#else
    return (long long)clock();
#endif
}

#endif
