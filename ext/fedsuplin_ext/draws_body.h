/* Standard normals in whole vectors. draws_dispatch.h includes this file once for each instruction
 * set (FSL_SUFFIX, FSL_NAME, FSL_WIDTH, FSL_TARGET), which is why it has no include guard. It is
 * compiled without fused multiply-adds, so that every set gives the same bits.
 *
 * FSL_STREAMS generators xoshiro256+ run side by side. Each step takes one number u and one v from
 * each, and makes two normals of them (Box and Muller): √(−2 ln u)·cos 2πv and √(−2 ln u)·sin 2πv.
 */

#define FSL_JOIN_(a, b) a##_##b
#define FSL_JOIN(a, b) FSL_JOIN_(a, b)
#define FN(name) FSL_JOIN(fsl_##name, FSL_SUFFIX)

#if FSL_WIDTH > 1
typedef double FN(real) __attribute__((vector_size(FSL_WIDTH * 8), aligned(8), may_alias));
typedef uint64_t FN(word) __attribute__((vector_size(FSL_WIDTH * 8), aligned(8), may_alias));
#define INLINE static inline __attribute__((always_inline)) FSL_TARGET
#else /* plain C: a vector of one */
typedef double FN(real);
typedef uint64_t FN(word);
#define INLINE static inline
#endif
#define REAL FN(real)
#define WORD FN(word)
#define W FSL_WIDTH

/* The bits of numbers as words, and back; and √ of each number. */
#if FSL_WIDTH > 1
INLINE WORD FN(bits)(REAL x) { return (WORD)x; }
INLINE REAL FN(number)(WORD x) { return (REAL)x; }
INLINE REAL FN(root)(REAL x)
{
    for (int e = 0; e < W; e++)
        x[e] = sqrt(x[e]);
    return x;
}
#else
INLINE WORD FN(bits)(REAL x)
{
    WORD word;
    memcpy(&word, &x, sizeof word);
    return word;
}
INLINE REAL FN(number)(WORD x)
{
    REAL number;
    memcpy(&number, &x, sizeof number);
    return number;
}
INLINE REAL FN(root)(REAL x) { return sqrt(x); }
#endif

/* The 12 high bits of a word less those of OFFSET, a signed number, as a double; and v minus the
 * nearest whole number, where `magic` is v + 1.5·2^52. AVX-512 needs fewer instructions for the
 * same bits. */
#if FSL_AVX512_LOGIC
#define OFFSET 0u
INLINE REAL FN(high_bits)(WORD x)
{
    return (REAL)_mm512_cvtepi64_pd(_mm512_srai_epi64((__m512i)x, 52));
}
INLINE REAL FN(fraction)(REAL v, REAL magic)
{
    (void)magic;
    return (REAL)_mm512_reduce_pd((__m512d)v, 0);
}
#else
#define OFFSET 0x4000000000000000u /* makes the number positive */
INLINE REAL FN(high_bits)(WORD x)
{
    return FN(number)(x >> 52 | 0x4330000000000000u) - (4503599627370496.0 + 1024.0);
}
INLINE REAL FN(fraction)(REAL v, REAL magic) { return v - (magic - 6755399441055744.0); }
#endif

/* Three words to one, bit by bit; `select` is b where `where` is set, else c. AVX-512 does each in
 * one instruction, which compilers do not find. */
#if FSL_AVX512_LOGIC
#define LOGIC(a, b, c, table)                                                                      \
    (WORD) _mm512_ternarylogic_epi64((__m512i)(a), (__m512i)(b), (__m512i)(c), table)
INLINE WORD FN(xor3)(WORD a, WORD b, WORD c) { return LOGIC(a, b, c, 0x96); }
INLINE WORD FN(xor_and)(WORD a, WORD b, WORD c) { return LOGIC(a, b, c, 0x78); }
INLINE WORD FN(select)(WORD where, WORD b, WORD c) { return LOGIC(where, b, c, 0xCA); }
#else
INLINE WORD FN(xor3)(WORD a, WORD b, WORD c) { return a ^ b ^ c; }
INLINE WORD FN(xor_and)(WORD a, WORD b, WORD c) { return a ^ (b & c); }
INLINE WORD FN(select)(WORD where, WORD b, WORD c) { return (where & b) | (~where & c); }
#endif

/* The next 64 bits of W generators. */
INLINE WORD FN(next)(WORD *s)
{
    const WORD result = s[0] + s[3], t = s[1] << 17, last = s[3] ^ s[1];
    const WORD third = FN(xor3)(s[2], s[0], t);
    s[1] = FN(xor3)(s[1], s[2], s[0]);
    s[0] ^= last;
    s[2] = third;
    s[3] = (last << 45) | (last >> 19);
    return result;
}

/* The 52 high bits as a double in [1, 2), or in [4, 8). */
INLINE REAL FN(from_one)(WORD x) { return FN(number)((x >> 12) | 0x3FF0000000000000u); }
INLINE REAL FN(from_four)(WORD x) { return FN(number)((x >> 12) | 0x4010000000000000u); }

/* −2 ln u for u in (0, 1]: u = 2^k m with m in [√½, √2), and ln m = 2 artanh z for
 * z = (m − 1)/(m + 1). */
INLINE REAL FN(minus_two_log)(REAL u)
{
    const WORD shifted = FN(bits)(u) + (OFFSET - 0x3FE6A09E667F3BCDu); /* √½ becomes OFFSET */
    const REAL m = FN(number)((shifted & 0x000FFFFFFFFFFFFFu) + 0x3FE6A09E667F3BCDu);
    const REAL exponent = FN(high_bits)(shifted);
    const REAL z = (m - 1.0) / (m + 1.0), y = z * z;
    REAL p = y * (1.0 / 13) + 1.0 / 11;
    p = p * y + 1.0 / 9;
    p = p * y + 1.0 / 7;
    p = p * y + 1.0 / 5;
    p = p * y + 1.0 / 3;
    p = p * y + 1.0;
    return exponent * (-2 * 0.69314718055994530942) + -4.0 * z * p;
}

/* cos and sin of v quarter turns, v in [0, 4): the nearest quarter is removed, and at most an
 * eighth of a turn is left. */
INLINE void FN(turn)(REAL v, REAL *cosine, REAL *sine)
{
    /* 1.5·2^52: rounds to a whole number, which is in the low bits */
    const REAL magic = v + 6755399441055744.0;
    const WORD quarter = FN(bits)(magic);
    const REAL f = FN(fraction)(v, magic) * 1.57079632679489661923, y = f * f;
    REAL s = y * (-1.0 / 39916800.0) + 1.0 / 362880.0;
    s = s * y - 1.0 / 5040.0;
    s = s * y + 1.0 / 120.0;
    s = s * y - 1.0 / 6.0;
    s = s * y * f + f;
    REAL c = y * (1.0 / 479001600.0) - 1.0 / 3628800.0;
    c = c * y + 1.0 / 40320.0;
    c = c * y - 1.0 / 720.0;
    c = c * y + 1.0 / 24.0;
    c = c * y - 0.5;
    c = c * y + 1.0;
    /* quarter 0: (c, s), 1: (−s, c), 2: (−c, −s), 3: (s, −c) */
    const WORD swap = 0u - (quarter & 1), sign = (quarter ^ quarter) + 0x8000000000000000u;
    const WORD s_bits = FN(bits)(s), c_bits = FN(bits)(c);
    *cosine = FN(number)(FN(xor_and)(FN(select)(swap, s_bits, c_bits), (quarter + 1) << 62, sign));
    *sine = FN(number)(FN(xor_and)(FN(select)(swap, c_bits, s_bits), quarter << 62, sign));
}

/* n normals, n a multiple of 2·FSL_STREAMS. The polynomials above have errors of about 1e-11, which
 * no test of the distribution can detect. */
static FSL_TARGET void FN(normals)(uint64_t *state, double *out, ptrdiff_t n)
{
    for (int l = 0; l < FSL_STREAMS; l += W) {
        WORD s[4];
        for (int k = 0; k < 4; k++)
            s[k] = *(const WORD *)(state + k * FSL_STREAMS + l);
        for (ptrdiff_t i = l; i < n; i += 2 * FSL_STREAMS) {
            const REAL u = 2.0 - FN(from_one)(FN(next)(s)), v = FN(from_four)(FN(next)(s)) - 4.0;
            const REAL length = FN(root)(FN(minus_two_log)(u));
            REAL cosine, sine;
            FN(turn)(v, &cosine, &sine);
            *(REAL *)(out + i) = length * cosine;
            *(REAL *)(out + i + FSL_STREAMS) = length * sine;
        }
        for (int k = 0; k < 4; k++)
            *(WORD *)(state + k * FSL_STREAMS + l) = s[k];
    }
}

/* length/√sum for N sums, with lengths of 1 for NULL; 0 for a sum of 0: a u of 1, once in 2^52,
 * gives normals of 0. */
#define SCALE_FACTOR(N, VECTOR)                                                                    \
    INLINE VECTOR FN(factor_of_##N)(VECTOR sum, const double *lengths)                             \
    {                                                                                              \
        const VECTOR none = sum - sum;                                                             \
        VECTOR length = none + 1.0;                                                                \
        if (lengths)                                                                               \
            length = *(const VECTOR *)lengths;                                                     \
        const __typeof__(sum > none) some = sum > none;                                            \
        VECTOR root = sum;                                                                         \
        for (int e = 0; e < N; e++)                                                                \
            root[e] = sqrt(root[e]);                                                               \
        return (VECTOR)((__typeof__(sum > none))(length / root) & some);                           \
    }
INLINE double FN(factor_of_1)(double sum, const double *lengths)
{
    return sum > 0.0 ? (lengths ? *lengths : 1.0) / sqrt(sum) : 0.0;
}

/* Scale V vectors of N columns of `raw` (d × n_arms), the first of which is number `first`, to
 * length 1, or to their `lengths`, into `out` of the same shape, which may be `raw`. V sums run
 * side by side, so that no addition waits for the one before it. Each column is summed from its
 * first row to its last, whatever N and V.
 *
 * The last vector ends with the last column. The columns that it shares with the vector before get
 * the same numbers twice: both are in one block, which reads a row before it writes it. */
#define SCALE_BLOCK(N, VECTOR)                                                                     \
    INLINE void FN(scale_by_##N)(const double *raw, const double *lengths, int d, int n_arms,      \
                                 double *out, int first, const int V)                              \
    {                                                                                              \
        VECTOR sum[4], factor[4];                                                                  \
        int at[4];                                                                                 \
        for (int v = 0; v < V; v++) {                                                              \
            at[v] = (first + v) * N < n_arms - N ? (first + v) * N : n_arms - N;                   \
            sum[v] = *(const VECTOR *)(raw + at[v]) * *(const VECTOR *)(raw + at[v]);              \
        }                                                                                          \
        for (ptrdiff_t i = 1; i < d; i++)                                                          \
            for (int v = 0; v < V; v++) {                                                          \
                const VECTOR x = *(const VECTOR *)(raw + i * n_arms + at[v]);                      \
                sum[v] += x * x;                                                                   \
            }                                                                                      \
        for (int v = 0; v < V; v++)                                                                \
            factor[v] = FN(factor_of_##N)(sum[v], lengths ? lengths + at[v] : lengths);            \
        for (ptrdiff_t i = 0; i < d; i++) {                                                        \
            VECTOR row[4];                                                                         \
            for (int v = 0; v < V; v++)                                                            \
                row[v] = *(const VECTOR *)(raw + i * n_arms + at[v]) * factor[v];                  \
            for (int v = 0; v < V; v++)                                                            \
                *(VECTOR *)(out + i * n_arms + at[v]) = row[v];                                    \
        }                                                                                          \
    }                                                                                              \
    /* All columns, of which there are at least N. */                                              \
    INLINE void FN(scale_all_by_##N)(const double *raw, const double *lengths, int d, int n_arms,  \
                                     double *out)                                                  \
    {                                                                                              \
        const int vectors = (n_arms + N - 1) / N;                                                  \
        for (int v = 0; v < vectors;) {                                                            \
            const int left = vectors - v;                                                          \
            if (left == 4 || left > 5) {                                                           \
                FN(scale_by_##N)(raw, lengths, d, n_arms, out, v, 4);                              \
                v += 4;                                                                            \
            } else if (left >= 3) {                                                                \
                FN(scale_by_##N)(raw, lengths, d, n_arms, out, v, 3);                              \
                v += 3;                                                                            \
            } else if (left == 2) {                                                                \
                FN(scale_by_##N)(raw, lengths, d, n_arms, out, v, 2);                              \
                v += 2;                                                                            \
            } else {                                                                               \
                FN(scale_by_##N)(raw, lengths, d, n_arms, out, v, 1);                              \
                v += 1;                                                                            \
            }                                                                                      \
        }                                                                                          \
    }

#if FSL_WIDTH >= 8
SCALE_FACTOR(8, REAL)
SCALE_BLOCK(8, REAL)
#endif
#if FSL_WIDTH >= 4
SCALE_FACTOR(4, fsl_four)
SCALE_BLOCK(4, fsl_four)
#endif
#if FSL_WIDTH >= 2
SCALE_FACTOR(2, fsl_two)
SCALE_BLOCK(2, fsl_two)
#endif
SCALE_BLOCK(1, double)

static FSL_TARGET void FN(scale_columns)(const double *raw, const double *lengths, int d,
                                         int n_arms, double *out)
{
#if FSL_WIDTH >= 8
    if (n_arms >= 8) {
        FN(scale_all_by_8)(raw, lengths, d, n_arms, out);
        return;
    }
#endif
#if FSL_WIDTH >= 4
    if (n_arms >= 4) {
        FN(scale_all_by_4)(raw, lengths, d, n_arms, out);
        return;
    }
#endif
#if FSL_WIDTH >= 2
    if (n_arms >= 2) {
        FN(scale_all_by_2)(raw, lengths, d, n_arms, out);
        return;
    }
#endif
    FN(scale_all_by_1)(raw, lengths, d, n_arms, out);
}

static const fsl_draw_set FN(draws) = {FSL_NAME, FN(normals), FN(scale_columns)};

#undef SCALE_FACTOR
#undef LOGIC
#undef OFFSET
#undef SCALE_BLOCK
#undef FSL_JOIN_
#undef FSL_JOIN
#undef FN
#undef REAL
#undef WORD
#undef W
#undef INLINE
#undef FSL_SUFFIX
#undef FSL_NAME
#undef FSL_WIDTH
#undef FSL_TARGET
