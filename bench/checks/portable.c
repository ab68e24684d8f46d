/* The C of the core by itself, for compilers and CPUs that have no Python here.
 *
 * bench/checks/portable compiles and runs it, and tests/ext/test_plain_kernels.py loads both its
 * plain and its usual form. As a program it prints the first normals of one fixed state, whose
 * bits must be the same everywhere, and checks each set of kernels against simple loops.
 */
#include <stdio.h>

#include "draws_dispatch.h"
#include "kernels_dispatch.h"

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT
#endif

EXPORT const fsl_kernel_set *portable_kernels(const char *name);
EXPORT int portable_draw_sets(void);
EXPORT void portable_normals(uint64_t *state, double *out, ptrdiff_t n);
EXPORT void portable_scale_columns(const double *raw, const double *lengths, int d, int n_arms,
                                   double *out);
EXPORT void portable_permute(uint64_t start, ptrdiff_t n, uint64_t size, int left, int right,
                             const uint64_t *keys, int64_t *out);

const fsl_kernel_set *portable_kernels(const char *name) { return fsl_kernels_named(name); }
static const char *const DRAWS[] = {"generic", "avx2", "split512", "avx512"};
int portable_draw_sets(void)
{
    int found = 0;
    for (int i = 0; i < 4; i++)
        found += fsl_draws_named(DRAWS[i]) != NULL;
    return found;
}
void portable_normals(uint64_t *state, double *out, ptrdiff_t n)
{
    fsl_draws_named("generic")->normals(state, out, n);
}
void portable_scale_columns(const double *raw, const double *lengths, int d, int n_arms,
                            double *out)
{
    fsl_draws_named("generic")->scale_columns(raw, lengths, d, n_arms, out);
}
void portable_permute(uint64_t start, ptrdiff_t n, uint64_t size, int left, int right,
                      const uint64_t *keys, int64_t *out)
{
    fsl_permute(start, n, size, left, right, keys, out);
}

#define NORMALS 4096
#define D 13
#define LD 16
#define LANES 24 /* a multiple of the lanes of every set */

/* FNV-1a over the bits of the numbers: one word that differs where any bit does. */
static uint64_t fingerprint(const double *numbers, int n)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (int i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, numbers + i, sizeof bits);
        for (int byte = 0; byte < 8; byte++)
            hash = (hash ^ (bits >> (8 * byte) & 0xFF)) * 0x100000001B3u;
    }
    return hash;
}

static void draw(int set, double *out)
{
    uint64_t state[4 * FSL_STREAMS], x = 0;
    for (int k = 0; k < 4 * FSL_STREAMS; k++) { /* SplitMix64 */
        uint64_t z = x += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        state[k] = z ^ (z >> 31);
    }
    fsl_draws_named(DRAWS[set])->normals(state, out, NORMALS);
}

static double worst(double found, double expected, double so_far)
{
    const double off = fabs(found - expected) / (1.0 + fabs(expected));
    return off > so_far ? off : so_far;
}

/* The largest relative difference between a set of kernels and plain sums. */
static double difference(const fsl_kernel_set *k, const double *numbers)
{
    static double A[D * LD], P[D * LD], X[D * LANES], theta[LD], y[LD], u[LD];
    static double width[LANES], estimate[LANES];
    double off = 0.0, log_det;
    memset(A, 0, sizeof A);
    memset(theta, 0, sizeof theta);
    for (int i = 0; i < D; i++) {
        theta[i] = numbers[2000 + i];
        for (int j = 0; j < D; j++)
            A[i * LD + j] = (i == j ? 4.0 : 0.0) + (numbers[i * D + j] + numbers[j * D + i]) / 20.0;
        for (int a = 0; a < LANES; a++)
            X[i * LANES + a] = numbers[1000 + i * LANES + a];
    }
    memcpy(P, A, sizeof A);
    if (k->invert(P, LD, D, u, &log_det) != 0)
        return HUGE_VAL;
    for (int i = 0; i < D; i++) /* A P = I */
        for (int j = 0; j < D; j++) {
            double sum = 0.0;
            for (int l = 0; l < D; l++)
                sum += A[i * LD + l] * P[l * LD + j];
            off = worst(sum, i == j ? 1.0 : 0.0, off);
        }
    k->matvec(P, LD, theta, D, y);
    k->norms(P, LD, theta, X, LANES, D, LANES, 2.0, width, estimate);
    for (int i = 0; i < D; i++) {
        double sum = 0.0;
        for (int j = 0; j < D; j++)
            sum += P[i * LD + j] * theta[j];
        off = worst(y[i], sum, off);
    }
    for (int a = 0; a < LANES; a++) {
        double form = 0.0, along = 0.0;
        for (int i = 0; i < D; i++) {
            along += theta[i] * X[i * LANES + a];
            for (int j = 0; j < D; j++)
                form += X[i * LANES + a] * P[i * LD + j] * X[j * LANES + a];
        }
        off = worst(width[a], 2.0 * sqrt(form), off);
        off = worst(estimate[a], along, off);
    }
    return off;
}

int main(void)
{
    static double normals[NORMALS];
    static const char *const names[] = {"generic", "avx2", "split512", "avx512"};
    int failed = 0;
    for (int set = 0; set < 4; set++) {
        if (fsl_draws_named(DRAWS[set]) == NULL)
            continue;
        draw(set, normals);
        printf("%s draws %08x%08x, the first %a\n", DRAWS[set],
               (unsigned)(fingerprint(normals, NORMALS) >> 32),
               (unsigned)fingerprint(normals, NORMALS), normals[0]);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const fsl_kernel_set *k = fsl_kernels_named(names[i]);
        const double off = k ? difference(k, normals) : 0.0;
        if (k)
            printf("%s kernels differ by %.1e\n", names[i], off);
        failed |= !(off < 1e-12);
    }
    return failed;
}
