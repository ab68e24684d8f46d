/* Proofs in 16-bit fixed point that no arm is wide. kernels_dispatch.h includes this file once for
 * each instruction set (FSL_SUFFIX, FSL_TARGET, FSL_MADD), which is why it has no include guard.
 *
 * Past layer 0 the widths answer one question: is xᵀP x above τ for any kept arm? An upper bound of
 * xᵀP x, four times cheaper than the form itself, mostly says no. Where it can't, double precision
 * decides, so that a decision never depends on what is below.
 *
 * The bound. Let c = tr P/d and E = P − cI, and let T be the lower triangle with T_ii = E_ii and
 * T_ij = 2E_ij for j < i. Then xᵀP x = c‖x‖² + xᵀE x = c‖x‖² + xᵀT x, for half of the products.
 * T and x become 16-bit integers by cutting off their fractions,
 *
 *     t_ij = trunc(S T_ij), so T = t/S + F with |F_ij| ≤ 1/S,
 *     z_j = trunc(Z x_j),   so x = z/Z + δ with |δ_j| ≤ 1/Z,
 *
 * and y = t z is summed in 32-bit integers. With x̃ = z/Z and ỹ = y/(SZ) = (t/S) x̃,
 *
 *     xᵀT x = xᵀ(t/S + F)x̃ + xᵀT δ = xᵀỹ + xᵀF x̃ + xᵀT δ.
 *
 * ‖x‖ ≤ N, and ‖x̃‖ ≤ ‖x‖ since fractions are cut off towards 0. So by Cauchy and Schwarz, with
 * Frobenius norms ‖·‖, the last two terms are at most
 *
 *     N²‖F‖ + N‖T‖‖δ‖ ≤ N² √(d(d+1)/2)/S + N‖T‖√d/Z.
 *
 * Integers are exact as long as they do not overflow. |t_ij| < 2¹⁵ and |z_j| < 2¹⁵ by the choice of
 * S and Z; and every partial sum of row i is at most ‖t_i‖‖z‖ ≤ S‖T_i‖·ZN < 2³¹, since S is at most
 * FSL_ROW_NORM over the largest row norm of T. In the lanes behind the last arm there may be parts
 * of two contexts, which together may be longer than N; sums wrap there, and are not looked at.
 *
 * The last product Σ x_i y_i is in single precision, with u = 2⁻²³ for one rounding, in whatever
 * rounding mode. y_i and x_i are rounded, multiplied and added: each term passes at most d + 3
 * roundings, so the error is below g Σ|x_i||y_i| ≤ g N‖y‖ with g = 2(d + 4)u, which is more than
 * (d + 3)u/(1 − (d + 3)u) for every d below a million; and ‖ỹ‖ ≤ (‖T‖ + ‖F‖)N. A number too small
 * for single precision may become 0: an x_i below 2⁻¹²⁶, times |y_i| < 2³¹, or a product below
 * 2⁻¹²⁶. That is at most 2d·2⁻⁹⁵/(SZ) in all. A matrix with an entry that is not finite, or too
 * large to be scaled, gets no proof. Contexts are checked before: all are finite.
 */

#include <stdint.h>

#define FSL_JOIN_(a, b) a##_##b
#define FSL_JOIN(a, b) FSL_JOIN_(a, b)
#define FN(name) FSL_JOIN(fsl_##name, FSL_SUFFIX)

/* INTS: a vector of NI 32-bit integers, each of which may be two of 16 bits; FLOATS: NI floats. */
#if FSL_MADD == 512 || FSL_MADD == 513
#define NI 16
#define MOST_NV 4
#define INTS __m512i
#define FLOATS __m512
#define NO_INTS _mm512_setzero_si512()
#define NO_FLOATS _mm512_setzero_ps()
#define LOAD_INTS(p) _mm512_loadu_si512((const void *)(p))
#define SPLAT(n) _mm512_set1_epi32(n)
#if FSL_MADD == 513 /* the product and the sum are one instruction */
#define ADD_PAIRS(t, a, b) __asm__("vpdpwssd %2, %1, %0" : "+v"(t) : "v"(a), "v"(b))
#else
#define ADD_PAIRS(t, a, b) (t) = _mm512_add_epi32(t, _mm512_madd_epi16(a, b))
#endif
#define ADD_PRODUCT(q, t, p) _mm512_fmadd_ps(_mm512_cvtepi32_ps(t), _mm512_loadu_ps(p), q)
#define STORE_FLOATS(p, q) _mm512_storeu_ps(p, q)
#define STORE_INTS(p, t) _mm512_storeu_si512((void *)(p), t)
#define DOUBLES __m512d
#define NO_DOUBLES _mm512_setzero_pd()
#define LOAD_DOUBLES(p) _mm512_loadu_pd(p)
#define SCALE(x) _mm512_mul_pd(_mm512_set1_pd(FSL_CONTEXT_SCALE), x)
#define CUT(x, y)                                                                                 \
    _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvttpd_epi32(SCALE(x))),                     \
                       _mm512_cvttpd_epi32(SCALE(y)), 1)
#define PAIR(low, high) _mm512_mask_blend_epi16(0xAAAAAAAAu, low, _mm512_slli_epi32(high, 16))
#define ROUND(x, y)                                                                               \
    _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(x)), _mm512_cvtpd_ps(y), 1)
#elif FSL_MADD == 256 || FSL_MADD == 257
#define NI 8
#define MOST_NV 2
#define INTS __m256i
#define FLOATS __m256
#define NO_INTS _mm256_setzero_si256()
#define NO_FLOATS _mm256_setzero_ps()
#define LOAD_INTS(p) _mm256_loadu_si256((const __m256i *)(p))
#define SPLAT(n) _mm256_set1_epi32(n)
#if FSL_MADD == 257
#define ADD_PAIRS(t, a, b) __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(t) : "x"(a), "x"(b))
#else
#define ADD_PAIRS(t, a, b) (t) = _mm256_add_epi32(t, _mm256_madd_epi16(a, b))
#endif
#define ADD_PRODUCT(q, t, p) _mm256_fmadd_ps(_mm256_cvtepi32_ps(t), _mm256_loadu_ps(p), q)
#define STORE_FLOATS(p, q) _mm256_storeu_ps(p, q)
#define STORE_INTS(p, t) _mm256_storeu_si256((__m256i *)(p), t)
#define DOUBLES __m256d
#define NO_DOUBLES _mm256_setzero_pd()
#define LOAD_DOUBLES(p) _mm256_loadu_pd(p)
#define SCALE(x) _mm256_mul_pd(_mm256_set1_pd(FSL_CONTEXT_SCALE), x)
#define CUT(x, y)                                                                                 \
    _mm256_inserti128_si256(_mm256_castsi128_si256(_mm256_cvttpd_epi32(SCALE(x))),                \
                            _mm256_cvttpd_epi32(SCALE(y)), 1)
#define PAIR(low, high) _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xAA)
#define ROUND(x, y)                                                                               \
    _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(x)), _mm256_cvtpd_ps(y), 1)
#elif FSL_MADD == 128
#define NI 4
#define MOST_NV 2
#define INTS __m128i
#define FLOATS __m128
#define NO_INTS _mm_setzero_si128()
#define NO_FLOATS _mm_setzero_ps()
#define LOAD_INTS(p) _mm_loadu_si128((const __m128i *)(p))
#define SPLAT(n) _mm_set1_epi32(n)
#define ADD_PAIRS(t, a, b) (t) = _mm_add_epi32(t, _mm_madd_epi16(a, b))
#define ADD_PRODUCT(q, t, p) _mm_add_ps(q, _mm_mul_ps(_mm_cvtepi32_ps(t), _mm_loadu_ps(p)))
#define STORE_FLOATS(p, q) _mm_storeu_ps(p, q)
#else /* plain C: vectors of one */
#define NI 1
#define MOST_NV 2
#define INTS int32_t
#define FLOATS float
#define NO_INTS 0
#define NO_FLOATS 0.0f
#define LOAD_INTS(p) (*(p))
#define SPLAT(n) (n)
/* Unsigned, where a sum that is too large wraps: one of arms that are not there. */
#define ADD_PAIRS(t, a, b)                                                                        \
    ((t) = (int32_t)((uint32_t)(t) + (uint32_t)(fsl_low(a) * fsl_low(b)) +                        \
                     (uint32_t)(fsl_high(a) * fsl_high(b))))
#define ADD_PRODUCT(q, t, p) ((q) + (float)(t) * *(p))
#define STORE_FLOATS(p, q) (*(p) = (q))
#endif

#if (FSL_MADD == 257 || FSL_MADD == 513) && !defined(__clang__) /* as in kernels_body.h */
#define FSL_IN_REGISTER(v) __asm__("" : "+v"(v))
#else
#define FSL_IN_REGISTER(v)
#endif

#if FSL_MADD
#define FSL_INLINE static inline __attribute__((always_inline)) FSL_TARGET
#define FSL_NOINLINE __attribute__((noinline))
#else
#define FSL_INLINE static inline
#define FSL_NOINLINE
#endif

/* Four rows of t at `panel`, for NV vectors of arms: y_r = Σ_j t_rj z_j, then q += x_r y_r. */
FSL_INLINE void FN(form_rows)(const int32_t *panel, const int32_t *pairs, const float *singles,
                              int lanes, int i, FLOATS *q, const int NV)
{
    INTS y[4][4];
    for (int r = 0; r < 4; r++)
        for (int v = 0; v < NV; v++)
            y[r][v] = NO_INTS;
    for (int k = 0; k < i / 2 + 2; k++)
    {
        INTS z[4];
        for (int v = 0; v < NV; v++) {
            z[v] = LOAD_INTS(pairs + (ptrdiff_t)k * lanes + v * NI);
            FSL_IN_REGISTER(z[v]);
        }
        for (int r = 0; r < 4; r++) {
            INTS t = SPLAT(panel[4 * k + r]);
            FSL_IN_REGISTER(t);
            for (int v = 0; v < NV; v++)
                ADD_PAIRS(y[r][v], t, z[v]);
        }
    }
    for (int r = 0; r < 4; r++)
        for (int v = 0; v < NV; v++)
            q[v] = ADD_PRODUCT(q[v], y[r][v], singles + (ptrdiff_t)(i + r) * lanes + v * NI);
}

FSL_INLINE void FN(form_block)(const int32_t *panel, const int32_t *pairs, const float *singles,
                               int lanes, int d, float *form, const int NV)
{
    FLOATS q[4];
    for (int v = 0; v < NV; v++)
        q[v] = NO_FLOATS;
    for (int i = 0; i < d; i += 4) {
        FN(form_rows)(panel, pairs, singles, lanes, i, q, NV);
        panel += 4 * (i / 2 + 2);
    }
    for (int v = 0; v < NV; v++)
        STORE_FLOATS(form + v * NI, q[v]);
}

#define FSL_FORM_BLOCK(NV)                                                                        \
    static FSL_NOINLINE FSL_TARGET void FN(form_block_##NV)(                                      \
        const int32_t *panel, const int32_t *pairs, const float *singles, int lanes, int d,       \
        float *form)                                                                              \
    {                                                                                             \
        FN(form_block)(panel, pairs, singles, lanes, d, form, NV);                                \
    }
FSL_FORM_BLOCK(1)
FSL_FORM_BLOCK(2)
#if MOST_NV == 4
FSL_FORM_BLOCK(3)
FSL_FORM_BLOCK(4)
#endif
#undef FSL_FORM_BLOCK

/* form[a] = SZ·x_aᵀT x_a in fixed point, for all arms. */
static FSL_TARGET void FN(forms)(const int32_t *panel, const int32_t *pairs, const float *singles,
                                 int lanes, int d, float *form)
{
    int a = 0;
    while (a < lanes) {
        const int left = (lanes - a) / NI;
#if MOST_NV == 4
        if (left == 4 || left > 6) {
            FN(form_block_4)(panel, pairs + a, singles + a, lanes, d, form + a);
            a += 4 * NI;
            continue;
        }
        if (left >= 3) {
            FN(form_block_3)(panel, pairs + a, singles + a, lanes, d, form + a);
            a += 3 * NI;
            continue;
        }
#endif
        if (left >= 2) {
            FN(form_block_2)(panel, pairs + a, singles + a, lanes, d, form + a);
            a += 2 * NI;
        } else {
            FN(form_block_1)(panel, pairs + a, singles + a, lanes, d, form + a);
            a += NI;
        }
    }
}

#ifdef DOUBLES
/* Two rows of contexts in fixed point, side by side in pairs, and in single precision. Returns how
 * many arms are done: all of the whole vectors. */
FSL_INLINE int FN(quantise_pair)(const double *even, const double *odd, int lanes, int32_t *pair,
                                 float *first, float *second)
{
    int a = 0;
    for (; a + NI <= lanes; a += NI) {
        const DOUBLES x0 = LOAD_DOUBLES(even + a), x1 = LOAD_DOUBLES(even + a + NI / 2);
        const DOUBLES y0 = LOAD_DOUBLES(odd + a), y1 = LOAD_DOUBLES(odd + a + NI / 2);
        STORE_INTS(pair + a, PAIR(CUT(x0, x1), CUT(y0, y1)));
        STORE_FLOATS(first + a, ROUND(x0, x1));
        STORE_FLOATS(second + a, ROUND(y0, y1));
    }
    if (a < lanes && lanes - a == NI / 2) {
        const DOUBLES x = LOAD_DOUBLES(even + a), y = LOAD_DOUBLES(odd + a);
        const DOUBLES none = NO_DOUBLES;
        STORE_INTS(pair + a, PAIR(CUT(x, none), CUT(y, none)));
        STORE_FLOATS(first + a, ROUND(x, none));
        STORE_FLOATS(second + a, ROUND(y, none));
        a += NI;
    }
    return a;
}
#endif

/* Contexts in fixed point: z in pairs of coordinates, and x in single precision. `to` is `lanes`
 * rounded up to whole vectors of integers; rows are added up to a multiple of four. */
static FSL_TARGET void FN(quantise)(const double *FSL_RESTRICT X, ptrdiff_t ldx, int lanes, int d,
                                    int32_t *FSL_RESTRICT pairs, float *FSL_RESTRICT singles,
                                    int to)
{
    const int rows = (d + 3) / 4 * 4;
    for (int i = 0; i < rows; i += 2) {
        const double *even = X + i * ldx, *odd = even + ldx;
        int32_t *pair = pairs + (ptrdiff_t)(i / 2) * to;
        float *first = singles + (ptrdiff_t)i * to, *second = first + to;
        int a = 0;
#ifdef DOUBLES
        if (i + 1 < d)
            a = FN(quantise_pair)(even, odd, lanes, pair, first, second);
#endif
        if (i + 1 < d)
            for (; a < lanes; a++) {
                const int32_t low = (int32_t)(FSL_CONTEXT_SCALE * even[a]);
                const int32_t high = (int32_t)(FSL_CONTEXT_SCALE * odd[a]);
                pair[a] = (int32_t)(((uint32_t)high << 16) | ((uint32_t)low & 0xFFFFu));
                first[a] = (float)even[a];
                second[a] = (float)odd[a];
            }
        else if (i < d)
            for (; a < lanes; a++) {
                pair[a] = (int32_t)(FSL_CONTEXT_SCALE * even[a]) & 0xFFFF;
                first[a] = (float)even[a];
                second[a] = 0.0f;
            }
        for (; a < to; a++) {
            pair[a] = 0;
            first[a] = second[a] = 0.0f;
        }
    }
}

/* The largest form of the kept arms; out[a] is 0 for those, else −∞. */
static FSL_TARGET double FN(largest_form)(const float *form, const double *out, int lanes)
{
    double m[4] = {-HUGE_VAL, -HUGE_VAL, -HUGE_VAL, -HUGE_VAL};
    for (int a = 0; a < lanes; a += 4)
        for (int l = 0; l < 4; l++) {
            const double x = (double)form[a + l] + out[a + l];
            m[l] = x > m[l] ? x : m[l];
        }
    for (int l = 1; l < 4; l++)
        m[0] = m[l] > m[0] ? m[l] : m[0];
    return m[0];
}

static const fsl_proof_set FN(proofs) = {NI, FN(quantise), FN(forms), FN(largest_form)};

#undef FSL_JOIN_
#undef FSL_JOIN
#undef FN
#undef NI
#undef MOST_NV
#undef INTS
#undef FLOATS
#undef NO_INTS
#undef NO_FLOATS
#undef LOAD_INTS
#undef STORE_INTS
#undef DOUBLES
#undef NO_DOUBLES
#undef LOAD_DOUBLES
#undef SCALE
#undef CUT
#undef PAIR
#undef ROUND
#undef SPLAT
#undef ADD_PAIRS
#undef ADD_PRODUCT
#undef STORE_FLOATS
#undef FSL_IN_REGISTER
#undef FSL_INLINE
#undef FSL_NOINLINE
#undef FSL_SUFFIX
#undef FSL_TARGET
#undef FSL_MADD
