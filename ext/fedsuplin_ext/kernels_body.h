/* The kernels themselves. kernels_dispatch.h includes this file once for each instruction set
 * (FSL_SUFFIX, FSL_WIDTH doubles per vector, FSL_TARGET, FSL_PROOFS, FSL_X86), which is why it has
 * no include guard. FSL_X86 is the number of bits of a vector that is one register of an x86 CPU,
 * else 0. With FSL_BEST_PROOFS there is a second set with these proofs, for the CPUs that have what
 * they need. */

#define FSL_JOIN_(a, b) a##_##b
#define FSL_JOIN(a, b) FSL_JOIN_(a, b)
#define FN(name) FSL_JOIN(fsl_##name, FSL_SUFFIX)
#define FSL_STRING_(a) #a
#define FSL_STRING(a) FSL_STRING_(a)

#if FSL_WIDTH > 1
typedef double FN(vec) __attribute__((vector_size(FSL_WIDTH * 8), aligned(8), may_alias));
typedef int64_t FN(truth) __attribute__((vector_size(FSL_WIDTH * 8), aligned(8), may_alias));
#define FSL_INLINE static inline __attribute__((always_inline)) FSL_TARGET
#define FSL_NOINLINE __attribute__((noinline))
#else
typedef double FN(vec);
typedef int64_t FN(truth);
#define FSL_INLINE static inline
#define FSL_NOINLINE
#endif
#define VEC FN(vec)
#define TRUTH FN(truth) /* what comparing two vectors gives: not 0 where it holds */
#define W FSL_WIDTH
/* GCC loads a vector that is used several times anew for each use, unless it is pinned. That costs
 * a third of the speed of `norms`. */
#if FSL_X86 && !defined(__clang__)
#define FSL_IN_REGISTER(v) __asm__("" : "+v"(v))
#else
#define FSL_IN_REGISTER(v)
#endif
#define LANES (W > 4 ? W : 4)

FSL_INLINE VEC FN(load)(const double *p) { return *(const VEC *)p; }
FSL_INLINE void FN(store)(double *p, VEC v) { *(VEC *)p = v; }
FSL_INLINE VEC FN(splat)(double a)
{
    VEC v = {0};
    return v + a;
}

/* x where a comparison holds, else y. */
FSL_INLINE VEC FN(choose)(TRUTH where, VEC x, VEC y)
{
#if FSL_WIDTH > 1
    return (VEC)(((TRUTH)x & where) | ((TRUTH)y & ~where));
#else
    return where ? x : y;
#endif
}

/* The larger of each lane; where one of the two is not a number, y. */
FSL_INLINE VEC FN(larger)(VEC x, VEC y)
{
#if FSL_X86 == 512
    return (VEC)_mm512_max_pd((__m512d)x, (__m512d)y);
#elif FSL_X86 == 256
    return (VEC)_mm256_max_pd((__m256d)x, (__m256d)y);
#elif FSL_X86 == 128
    return (VEC)_mm_max_pd((__m128d)x, (__m128d)y);
#else
    return FN(choose)((TRUTH)(x > y), x, y);
#endif
}

FSL_INLINE VEC FN(square_root)(VEC v)
{
#if FSL_X86 == 512
    return (VEC)_mm512_sqrt_pd((__m512d)v);
#elif FSL_X86 == 256
    return (VEC)_mm256_sqrt_pd((__m256d)v);
#elif FSL_X86 == 128
    return (VEC)_mm_sqrt_pd((__m128d)v);
#else
    for (int l = 0; l < W; l++)
        ((double *)&v)[l] = sqrt(((const double *)&v)[l]);
    return v;
#endif
}

/* Loops over at most eight indices as steps with a constant k, so that what is indexed with k stays
 * in registers: compilers unroll the innermost loop only. */
#define FSL_STEPS_UP(step)                                                                        \
    do {                                                                                          \
        step(0) step(1) step(2) step(3) step(4) step(5) step(6) step(7)                           \
    } while (0)
#define FSL_STEPS_DOWN(step)                                                                      \
    do {                                                                                          \
        step(7) step(6) step(5) step(4) step(3) step(2) step(1) step(0)                           \
    } while (0)

/* t_r += Σ_j P_{i+r, j} x_j over the columns j left of the block. R × NV accumulators share the
 * loads of x_j and hide the latency of the multiply-adds. */
FSL_INLINE void FN(norm_columns)(const double *p, ptrdiff_t ldp, const double *X, ptrdiff_t ldx,
                                 int to, VEC t[8][4], const int R, const int NV)
{
    for (int j = 0; j < to; j++) {
        VEC x[4];
        for (int v = 0; v < NV; v++) {
            x[v] = FN(load)(X + j * ldx + v * W);
            FSL_IN_REGISTER(x[v]);
        }
        for (int r = 0; r < R; r++)
            for (int v = 0; v < NV; v++)
                t[r][v] += p[r * ldp + j] * x[v];
    }
}

/* R rows of one block of arms: q += x_i(½P_ii x_i + Σ_{j<i} P_ij x_j) for each row i, half of the
 * form, so that only half of the matrix is read; e += θ̂_i x_i. Row c of the block is complete once
 * the columns up to its own are in. */
FSL_INLINE void FN(norm_rows)(const double *P, ptrdiff_t ldp, const double *theta, const double *X,
                              ptrdiff_t ldx, int i, VEC *q, VEC *e, const int R, const int NV)
{
    VEC t[8][4];
    const double *p = P + i * ldp;
    for (int r = 0; r < R; r++)
        for (int v = 0; v < NV; v++)
            t[r][v] = 0.5 * p[r * ldp + i + r] * FN(load)(X + (i + r) * ldx + v * W);
    FN(norm_columns)(p, ldp, X, ldx, i, t, R, NV);
#define FSL_STEP(c)                                                                               \
    if (c < R)                                                                                    \
        for (int v = 0; v < NV; v++) {                                                            \
            VEC x = FN(load)(X + (i + c) * ldx + v * W);                                          \
            FSL_IN_REGISTER(x);                                                                   \
            e[v] += theta[i + c] * x; /* in the order of `products`: the same bits */             \
            q[v] += t[c][v] * x;                                                                  \
            for (int r = c + 1; r < R; r++)                                                       \
                t[r][v] += p[r * ldp + i + c] * x;                                                \
        }
    FSL_STEPS_UP(FSL_STEP);
#undef FSL_STEP
}

FSL_INLINE void FN(norm_block)(const double *P, ptrdiff_t ldp, const double *theta, const double *X,
                               ptrdiff_t ldx, int d, double radius, double *width,
                               double *estimate, const int R, const int NV)
{
    VEC q[4], e[4];
    int i = d % R; /* the odd rows come first, where a row has few entries left of the diagonal */
    for (int v = 0; v < NV; v++)
        q[v] = e[v] = FN(splat)(0.0);
    for (int row = 0; row < i; row++)
        FN(norm_rows)(P, ldp, theta, X, ldx, row, q, e, 1, NV);
    for (; i < d; i += R)
        FN(norm_rows)(P, ldp, theta, X, ldx, i, q, e, R, NV);
    for (int v = 0; v < NV; v++) {
        FN(store)(width + v * W, radius * FN(square_root)(FN(larger)(q[v] + q[v], FN(splat)(0.0))));
        FN(store)(estimate + v * W, e[v]);
    }
}

/* Each block shape is a function of its own: in one function the compiler runs out of registers. */
#define FSL_NORM_BLOCK(R, NV)                                                                     \
    static FSL_NOINLINE FSL_TARGET void FN(norm_block_##R##_##NV)(                                \
        const double *P, ptrdiff_t ldp, const double *theta, const double *X, ptrdiff_t ldx,      \
        int d, double radius, double *width, double *estimate)                                    \
    {                                                                                             \
        FN(norm_block)(P, ldp, theta, X, ldx, d, radius, width, estimate, R, NV);                 \
    }
FSL_NORM_BLOCK(8, 1)
FSL_NORM_BLOCK(6, 2)
FSL_NORM_BLOCK(4, 3)
#if FSL_WIDTH == 8 /* 32 registers */
FSL_NORM_BLOCK(4, 4)
#endif
#undef FSL_NORM_BLOCK

#define FSL_NORMS(R, NV)                                                                          \
    FN(norm_block_##R##_##NV)                                                                     \
    (P, ldp, theta, X + a, ldx, d, radius, width + a, estimate + a);                              \
    a += NV * W

/* Three or four vectors of arms at once: one alone costs nearly as much as two. */
static FSL_TARGET void FN(norms)(const double *P, ptrdiff_t ldp, const double *theta,
                                 const double *X, ptrdiff_t ldx, int d, int lanes, double radius,
                                 double *width, double *estimate)
{
    int a = 0;
    while (a < lanes) {
        const int left = (lanes - a) / W;
        if (left == 1) {
            FSL_NORMS(8, 1);
#if FSL_WIDTH == 8
        } else if (left == 4 || left > 6) {
            FSL_NORMS(4, 4);
#endif
        } else if (left == 2 || left == 4) {
            FSL_NORMS(6, 2);
        } else {
            FSL_NORMS(4, 3);
        }
    }
}
#undef FSL_NORMS

/* The contexts of a round in rows of `lanes`, from rows of n_arms. The last vector of a row reads
 * on into the next rows, but nothing behind the last one; the padding, 0 before, stays so. */
static FSL_TARGET void FN(pad)(const double *X, int n_arms, int d, int lanes, double *to)
{
    const int whole = n_arms / W * W;
    int64_t is_arm[W];
    for (int l = 0; l < W; l++)
        is_arm[l] = -(whole + l < n_arms);
    const TRUTH arms = *(const TRUTH *)is_arm;
    for (int i = 0; i < d; i++, X += n_arms, to += lanes) {
        for (int a = 0; a < whole; a += W)
            FN(store)(to + a, FN(load)(X + a));
        if (whole < n_arms && (ptrdiff_t)(d - i) * n_arms - whole >= W)
            FN(store)(to + whole, FN(choose)(arms, FN(load)(X + whole), FN(splat)(0.0)));
        else
            for (int a = whole; a < n_arms; a++)
                to[a] = X[a];
    }
}

/* G products of the same arms: out[g][a] += v_gᵀ x_a, each sum in the order of the coordinates. */
FSL_INLINE void FN(product_block)(const double *const *vectors, const double *X, ptrdiff_t ldx,
                                  int d, double *out, int lanes, const int G, const int NV)
{
    VEC s[4][8];
    for (int g = 0; g < G; g++)
        for (int v = 0; v < NV; v++)
            s[g][v] = FN(splat)(0.0);
    for (int i = 0; i < d; i++)
        for (int v = 0; v < NV; v++) {
            VEC xi = FN(load)(X + i * ldx + v * W);
            FSL_IN_REGISTER(xi);
            for (int g = 0; g < G; g++)
                s[g][v] += vectors[g][i] * xi;
        }
    for (int g = 0; g < G; g++)
        for (int v = 0; v < NV; v++)
            FN(store)(out + g * lanes + v * W, s[g][v]);
}

#define FSL_PRODUCT_BLOCK(G, NV)                                                                  \
    static FSL_NOINLINE FSL_TARGET void FN(product_block_##G##_##NV)(                             \
        const double *const *vectors, const double *X, ptrdiff_t ldx, int d, double *out,         \
        int lanes)                                                                                \
    {                                                                                             \
        FN(product_block)(vectors, X, ldx, d, out, lanes, G, NV);                                 \
    }
#define FSL_PRODUCT_BLOCKS(G)                                                                     \
    FSL_PRODUCT_BLOCK(G, 1)                                                                       \
    FSL_PRODUCT_BLOCK(G, 2)                                                                       \
    FSL_PRODUCT_BLOCK(G, 3)
FSL_PRODUCT_BLOCKS(1)
FSL_PRODUCT_BLOCKS(2)
FSL_PRODUCT_BLOCKS(3)
FSL_PRODUCT_BLOCKS(4)
FSL_PRODUCT_BLOCK(1, 4)
FSL_PRODUCT_BLOCK(1, 5)
FSL_PRODUCT_BLOCK(1, 6)
FSL_PRODUCT_BLOCK(1, 7)
FSL_PRODUCT_BLOCK(1, 8)
#undef FSL_PRODUCT_BLOCKS
#undef FSL_PRODUCT_BLOCK

/* As many vectors of arms at once as there are, at most eight: each is a chain of multiply-adds
 * that wait for each other. */
static FSL_TARGET void FN(estimates)(const double *theta, const double *X, ptrdiff_t ldx, int d,
                                     int lanes, double *estimate)
{
    int a = 0;
    for (; a + 8 * W <= lanes; a += 8 * W)
        FN(product_block_1_8)(&theta, X + a, ldx, d, estimate + a, lanes);
    switch ((lanes - a) / W) {
    case 7: FN(product_block_1_7)(&theta, X + a, ldx, d, estimate + a, lanes); break;
    case 6: FN(product_block_1_6)(&theta, X + a, ldx, d, estimate + a, lanes); break;
    case 5: FN(product_block_1_5)(&theta, X + a, ldx, d, estimate + a, lanes); break;
    case 4: FN(product_block_1_4)(&theta, X + a, ldx, d, estimate + a, lanes); break;
    case 3: FN(product_block_1_3)(&theta, X + a, ldx, d, estimate + a, lanes); break;
    case 2: FN(product_block_1_2)(&theta, X + a, ldx, d, estimate + a, lanes); break;
    case 1: FN(product_block_1_1)(&theta, X + a, ldx, d, estimate + a, lanes); break;
    }
}

/* At most four vectors: the arms three vectors at a time, and never an odd one alone. */
#define FSL_PRODUCTS(G)                                                                           \
    for (int a = 0; a < lanes;) {                                                                 \
        const int left = (lanes - a) / W;                                                         \
        if (left == 1) {                                                                          \
            FN(product_block_##G##_1)(vectors, X + a, ldx, d, out + a, lanes);                    \
            a += W;                                                                               \
        } else if (left == 2 || left == 4) {                                                      \
            FN(product_block_##G##_2)(vectors, X + a, ldx, d, out + a, lanes);                    \
            a += 2 * W;                                                                           \
        } else {                                                                                  \
            FN(product_block_##G##_3)(vectors, X + a, ldx, d, out + a, lanes);                    \
            a += 3 * W;                                                                           \
        }                                                                                         \
    }

static FSL_TARGET void FN(products)(const double *const *vectors, int n, const double *X,
                                    ptrdiff_t ldx, int d, int lanes, double *out)
{
    for (; n >= 4; n -= 4, vectors += 4, out += 4 * lanes) {
        FSL_PRODUCTS(4)
    }
    if (n == 3) {
        FSL_PRODUCTS(3)
    } else if (n == 2) {
        FSL_PRODUCTS(2)
    } else if (n == 1) {
        FN(estimates)(*vectors, X, ldx, d, lanes, out);
    }
}
#undef FSL_PRODUCTS

/* The largest lane, in every lane. */
FSL_INLINE VEC FN(largest_lane)(VEC v)
{
#if FSL_X86 == 512
    __m512d m = (__m512d)v;
    m = _mm512_max_pd(m, _mm512_shuffle_f64x2(m, m, 0x4E)); /* the halves exchanged, */
    m = _mm512_max_pd(m, _mm512_shuffle_f64x2(m, m, 0xB1)); /* then neighbouring quarters, */
    return (VEC)_mm512_max_pd(m, _mm512_permute_pd(m, 0x55)); /* then neighbouring lanes */
#elif FSL_X86 == 256
    __m256d m = (__m256d)v;
    m = _mm256_max_pd(m, _mm256_permute2f128_pd(m, m, 1));
    return (VEC)_mm256_max_pd(m, _mm256_permute_pd(m, 5));
#elif FSL_X86 == 128
    const __m128d m = (__m128d)v;
    return (VEC)_mm_max_pd(m, _mm_shuffle_pd(m, m, 1));
#else
    const double *lane = (const double *)&v;
    double m = lane[0];
    for (int l = 1; l < W; l++)
        m = lane[l] > m ? lane[l] : m;
    return FN(splat)(m);
#endif
}

FSL_INLINE double FN(first_lane)(VEC v) { return ((const double *)&v)[0]; }

FSL_INLINE VEC FN(largest_of)(const double *value, const double *width, double sign,
                              const double *out, int lanes)
{
    VEC m = FN(splat)(-HUGE_VAL);
    for (int a = 0; a < lanes; a += W) {
        VEC x = FN(load)(value + a);
        if (sign != 0.0)
            x += sign * FN(load)(width + a);
        m = FN(larger)(x + FN(load)(out + a), m);
    }
    return FN(largest_lane)(m);
}

/* How many lanes of a vector are kept. */
FSL_INLINE int FN(count_kept)(VEC kept)
{
    const VEC dropped = FN(splat)(-HUGE_VAL);
#if FSL_X86 == 512
    return __builtin_popcount(_mm512_cmp_pd_mask((__m512d)kept, (__m512d)dropped, _CMP_GT_OQ));
#elif FSL_X86 == 256
    return __builtin_popcount(
        _mm256_movemask_pd(_mm256_cmp_pd((__m256d)kept, (__m256d)dropped, _CMP_GT_OQ)));
#else
    const TRUTH is_kept = (TRUTH)(kept > dropped);
    int n = 0;
    for (int l = 0; l < W; l++)
        n += ((const int64_t *)&is_kept)[l] != 0;
    return n;
#endif
}

FSL_INLINE int FN(keep_from)(const double *value, const double *width, double sign, VEC least,
                             double *out, int lanes)
{
    int left = 0;
    for (int a = 0; a < lanes; a += W) {
        VEC x = FN(load)(value + a);
        if (sign != 0.0)
            x += sign * FN(load)(width + a);
        const VEC kept =
            FN(choose)((TRUTH)(x >= least), FN(load)(out + a), FN(splat)(-HUGE_VAL));
        FN(store)(out + a, kept);
        left += FN(count_kept)(kept);
    }
    return left;
}

/* Layer 0, for NV vectors of arms, which stay in registers. */
FSL_INLINE double FN(screen_first_block)(const double *estimate, const double *width,
                                         double target, double *out, int *left, const int NV)
{
    const VEC dropped = FN(splat)(-HUGE_VAL);
    VEC r[4], w[4], kept[4], best = dropped, widest = dropped;
    for (int v = 0; v < NV; v++) {
        r[v] = FN(load)(estimate + v * W);
        w[v] = FN(load)(width + v * W);
        kept[v] = FN(load)(out + v * W);
        best = FN(larger)(r[v] - w[v] + kept[v], best);
    }
    best = FN(largest_lane)(best);
    for (int v = 0; v < NV; v++) {
        kept[v] = FN(choose)((TRUTH)(r[v] + w[v] >= best), kept[v], dropped);
        widest = FN(larger)(w[v] + kept[v], widest);
    }
    widest = FN(largest_lane)(widest);
    if (!(FN(first_lane)(widest) > target)) {
        best = dropped;
        for (int v = 0; v < NV; v++)
            best = FN(larger)(r[v] + kept[v], best);
        best = FN(largest_lane)(best) - 2 * target;
        for (int v = 0; v < NV; v++)
            kept[v] = FN(choose)((TRUTH)(r[v] >= best), kept[v], dropped);
    }
    *left = 0;
    for (int v = 0; v < NV; v++) {
        FN(store)(out + v * W, kept[v]);
        *left += FN(count_kept)(kept[v]);
    }
    return FN(first_lane)(widest);
}

/* The screening of layer 0; see kernels.h. */
static FSL_TARGET double FN(screen_first)(const double *estimate, const double *width,
                                          double target, double *out, int lanes, int *left)
{
    double widest;
    switch (lanes / W) {
    case 1: return FN(screen_first_block)(estimate, width, target, out, left, 1);
    case 2: return FN(screen_first_block)(estimate, width, target, out, left, 2);
    case 3: return FN(screen_first_block)(estimate, width, target, out, left, 3);
    }
    *left = FN(keep_from)(estimate, width, 1.0, FN(largest_of)(estimate, width, -1.0, out, lanes),
                          out, lanes);
    widest = FN(first_lane)(FN(largest_of)(width, width, 0.0, out, lanes));
    if (!(widest > target))
        *left = FN(keep_from)(estimate, estimate, 0.0,
                              FN(largest_of)(estimate, estimate, 0.0, out, lanes) - 2 * target,
                              out, lanes);
    return widest;
}

static FSL_TARGET int FN(keep_near_best)(const double *estimate, double within, double *out,
                                         int lanes)
{
    return FN(keep_from)(estimate, estimate, 0.0,
                         FN(largest_of)(estimate, estimate, 0.0, out, lanes) - within, out, lanes);
}

#if FSL_X86 == 512
/* The first of the largest of NV vectors of arms, which stay in registers. */
FSL_INLINE int FN(first_of_block)(const double *value, double above, double tie,
                                  const double *out, const int NV)
{
    VEC x[4], best = FN(splat)(-HUGE_VAL);
    double largest;
    for (int v = 0; v < NV; v++) {
        x[v] = FN(load)(value + v * W) + FN(load)(out + v * W);
        best = FN(larger)(x[v], best);
    }
    largest = FN(first_lane)(FN(largest_lane)(best));
    if (!(largest > above))
        return -1;
    const __m512d least = _mm512_set1_pd(largest - tie * fabs(largest));
    for (int v = 0; v < NV; v++) {
        const unsigned there =
            _mm512_cmp_pd_mask((__m512d)x[v], _mm512_set1_pd(above), _CMP_GT_OQ) &
            _mm512_cmp_pd_mask((__m512d)x[v], least, _CMP_GE_OQ);
        if (there)
            return v * W + __builtin_ctz(there);
    }
    return -1;
}
#endif

static FSL_TARGET int FN(first_of_largest)(const double *value, double above, double tie,
                                           const double *out, int lanes)
{
    double largest, least;
#if FSL_X86 == 512
    switch (lanes / W) {
    case 1: return FN(first_of_block)(value, above, tie, out, 1);
    case 2: return FN(first_of_block)(value, above, tie, out, 2);
    case 3: return FN(first_of_block)(value, above, tie, out, 3);
    }
#endif
    largest = FN(first_lane)(FN(largest_of)(value, value, 0.0, out, lanes));
    least = largest - tie * fabs(largest);
    if (!(largest > above))
        return -1;
    for (int a = 0; a < lanes; a++)
        if (out[a] == 0.0 && value[a] > above && value[a] >= least)
            return a;
    return -1;
}

/* The kept columns side by side; see kernels.h. */
static FSL_TARGET void FN(move_together)(const double *X, ptrdiff_t ldx, int lanes, int d,
                                         const double *out, const int *source, int left,
                                         double *to, int to_lanes)
{
#if FSL_X86 == 512
    /* A vector is written over nothing that is still to be read: it comes from the same place or
     * from further right. Zeros behind the last column are written last. */
    (void)source;
    for (int i = 0; i < d; i++, X += ldx, to += to_lanes) {
        double *at = to;
        for (int a = 0; a < lanes; a += W) {
            const __mmask8 kept = _mm512_cmp_pd_mask((__m512d)FN(load)(out + a),
                                                     _mm512_setzero_pd(), _CMP_EQ_OQ);
            const __m512d x = _mm512_maskz_compress_pd(kept, (__m512d)FN(load)(X + a));
            _mm512_storeu_pd(at, x);
            at += __builtin_popcount(kept);
        }
        FN(store)(to + left, FN(splat)(0.0));
    }
#else
    (void)lanes;
    (void)out;
    for (int i = 0; i < d; i++, X += ldx, to += to_lanes) {
        for (int a = 0; a < left; a++)
            to[a] = X[source[a]];
        for (int a = left; a < to_lanes; a++)
            to[a] = 0.0;
    }
#endif
}

/* Σ (uᵀx)² of the kept arms in one vector, −∞ for the dropped ones. */
FSL_INLINE VEC FN(sum_spikes)(const double *spikes, int n, VEC kept, int lanes)
{
    for (int i = 0; i < n; i++) {
        const VEC along = FN(load)(spikes + i * lanes);
        kept += along * along;
    }
    return kept;
}

/* Screening by estimates for NV vectors of arms, which stay in registers. */
FSL_INLINE int FN(screen_block)(const fsl_quiet_layer *layers, int n, double *out, int *left,
                                const int NV)
{
    const VEC dropped = FN(splat)(-HUGE_VAL);
    VEC kept[4];
    int done = 0;
    for (int v = 0; v < NV; v++)
        kept[v] = FN(load)(out + v * W);
    for (; done < n; done++) {
        const fsl_quiet_layer *layer = layers + done;
        VEC best = dropped;
        if (layer->n_spikes) {
            for (int v = 0; v < NV; v++)
                best = FN(larger)(FN(sum_spikes)(layer->spikes + v * W, layer->n_spikes, kept[v],
                                                 NV * W),
                                  best);
            if (!(FN(first_lane)(FN(largest_lane)(best)) < layer->room))
                break;
            best = dropped;
        }
        for (int v = 0; v < NV; v++)
            best = FN(larger)(FN(load)(layer->estimates + v * W) + kept[v], best);
        best = FN(largest_lane)(best) - layer->within;
        for (int v = 0; v < NV; v++)
            kept[v] = FN(choose)((TRUTH)(FN(load)(layer->estimates + v * W) >= best), kept[v],
                                 dropped);
    }
    *left = 0;
    for (int v = 0; v < NV; v++) {
        FN(store)(out + v * W, kept[v]);
        *left += FN(count_kept)(kept[v]);
    }
    return done;
}

/* Screening by estimates, layer after layer; see kernels.h. */
static FSL_TARGET int FN(screen)(const fsl_quiet_layer *layers, int n, double *out, int lanes,
                                 int *left)
{
    switch (lanes / W) {
    case 1: return FN(screen_block)(layers, n, out, left, 1);
    case 2: return FN(screen_block)(layers, n, out, left, 2);
    case 3: return FN(screen_block)(layers, n, out, left, 3);
    }
    for (int done = 0; done < n; done++) {
        const fsl_quiet_layer *layer = layers + done;
        if (layer->n_spikes) {
            VEC most = FN(splat)(-HUGE_VAL);
            for (int a = 0; a < lanes; a += W)
                most = FN(larger)(FN(sum_spikes)(layer->spikes + a, layer->n_spikes,
                                                 FN(load)(out + a), lanes),
                                  most);
            if (!(FN(first_lane)(FN(largest_lane)(most)) < layer->room))
                return done;
        }
        *left = FN(keep_near_best)(layer->estimates, layer->within, out, lanes);
    }
    return n;
}

/* NV vectors of y at once: y += Σ_j x_j P[j, ·], with no sum across lanes since P is symmetric. */
FSL_INLINE void FN(matvec_block)(const double *P, ptrdiff_t ldp, const double *x, int d, double *y,
                                 const int NV)
{
    VEC s[8];
    for (int v = 0; v < NV; v++)
        s[v] = FN(splat)(0.0);
    for (int j = 0; j < d; j++)
        for (int v = 0; v < NV; v++)
            s[v] += x[j] * FN(load)(P + j * ldp + v * W);
    for (int v = 0; v < NV; v++)
        FN(store)(y + v * W, s[v]);
}

FSL_INLINE double FN(sum_of_lanes)(VEC v)
{
#if FSL_X86 >= 256
#if FSL_X86 == 512
    const __m256d four = _mm256_add_pd(_mm512_castpd512_pd256((__m512d)v),
                                       _mm512_extractf64x4_pd((__m512d)v, 1));
#else
    const __m256d four = (__m256d)v;
#endif
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
#else
    double total = 0.0;
    for (int l = 0; l < W; l++)
        total += ((const double *)&v)[l];
    return total;
#endif
}

/* R rows of y = P x from row i on, W | i, with what they add to the rows below by symmetry: to the
 * right of the square on the diagonal each entry of P is read once and used twice. */
FSL_INLINE void FN(matvec_rows)(const double *P, ptrdiff_t ldp, const double *x, int i, double *y,
                                const int R)
{
    const double *p = P + i * ldp;
    VEC sum[W];
    for (int r = 0; r < R; r++)
        sum[r] = FN(load)(p + r * ldp + i) * FN(load)(x + i);
    for (ptrdiff_t j = i + W; j < ldp; j += W) {
        const VEC xj = FN(load)(x + j);
        VEC below = FN(load)(y + j);
        for (int r = 0; r < R; r++) {
            VEC entries = FN(load)(p + r * ldp + j);
            FSL_IN_REGISTER(entries);
            sum[r] += entries * xj;
            below += x[i + r] * entries;
        }
        FN(store)(y + j, below);
    }
    for (int r = 0; r < R; r++)
        y[i + r] += FN(sum_of_lanes)(sum[r]);
}

/* y = P x where P does not fit the nearest caches, so that reading it is all that counts. */
static FSL_TARGET void FN(matvec_of_half)(const double *P, ptrdiff_t ldp, const double *x, int d,
                                          double *y)
{
    int i = 0;
    memset(y, 0, ldp * sizeof *y);
    for (; i + W <= d; i += W)
        FN(matvec_rows)(P, ldp, x, i, y, W);
    switch (d - i) {
#if FSL_WIDTH == 8
    case 7: FN(matvec_rows)(P, ldp, x, i, y, 7); break;
    case 6: FN(matvec_rows)(P, ldp, x, i, y, 6); break;
    case 5: FN(matvec_rows)(P, ldp, x, i, y, 5); break;
    case 4: FN(matvec_rows)(P, ldp, x, i, y, 4); break;
#endif
#if FSL_WIDTH >= 4
    case 3: FN(matvec_rows)(P, ldp, x, i, y, 3); break;
    case 2: FN(matvec_rows)(P, ldp, x, i, y, 2); break;
#endif
#if FSL_WIDTH >= 2
    case 1: FN(matvec_rows)(P, ldp, x, i, y, 1); break;
#endif
    }
}

static FSL_TARGET void FN(matvec)(const double *P, ptrdiff_t ldp, const double *x, int d, double *y)
{
    ptrdiff_t i = 0;
    if (d >= FSL_LARGE) {
        FN(matvec_of_half)(P, ldp, x, d, y);
        return;
    }
    for (; i + 8 * W <= ldp; i += 8 * W)
        FN(matvec_block)(P + i, ldp, x, d, y + i, 8);
    switch ((ldp - i) / W) {
    case 7: FN(matvec_block)(P + i, ldp, x, d, y + i, 7); break;
    case 6: FN(matvec_block)(P + i, ldp, x, d, y + i, 6); break;
    case 5: FN(matvec_block)(P + i, ldp, x, d, y + i, 5); break;
    case 4: FN(matvec_block)(P + i, ldp, x, d, y + i, 4); break;
    case 3: FN(matvec_block)(P + i, ldp, x, d, y + i, 3); break;
    case 2: FN(matvec_block)(P + i, ldp, x, d, y + i, 2); break;
    case 1: FN(matvec_block)(P + i, ldp, x, d, y + i, 1); break;
    }
}

FSL_INLINE void FN(outer_rows)(double *result, const double *from, ptrdiff_t ldp, const double *u,
                               double sign, int d, const int upper)
{
    for (int i = 0; i < d; i++) {
        const double ui = sign * u[i];
        for (ptrdiff_t j = upper ? i / W * W : 0; j < ldp; j += W)
            FN(store)(result + i * ldp + j, FN(load)(from + i * ldp + j) + ui * FN(load)(u + j));
    }
}

static FSL_TARGET void FN(add_outer)(double *result, const double *from, ptrdiff_t ldp,
                                     const double *u, double sign, int d)
{
    FN(outer_rows)(result, from, ldp, u, sign, d, 0);
}

static FSL_TARGET void FN(add_outer_upper)(double *result, const double *from, ptrdiff_t ldp,
                                           const double *u, double sign, int d)
{
    FN(outer_rows)(result, from, ldp, u, sign, d, 1);
}

static FSL_TARGET double FN(dot)(const double *x, const double *y, ptrdiff_t n)
{
    VEC s = FN(splat)(0.0);
    for (ptrdiff_t i = 0; i < n; i += W)
        s += FN(load)(x + i) * FN(load)(y + i);
    return FN(sum_of_lanes)(s);
}

/* --- inverses ---
 *
 * The sweep operator on N indices K at a time, on the upper triangle. With A_KK = RᵀR (Cholesky)
 * and Y = R⁻ᵀA_K,
 *   A ← A − YᵀY outside K, then the rows and columns K become R⁻¹Y, and A_KK becomes −A_KK⁻¹;
 * after all indices A holds −A⁻¹. The pivots are those of Cholesky. Y lies in the rows K of A
 * itself: what is below the diagonal is free until the end. A ← A − YᵀY is nearly all of the work,
 * and does N multiply-adds for each number that it loads.
 * At these sizes that is faster than LAPACK, whose threads would slow parallel runs down and whose
 * bits depend on the number of threads. */
#define FSL_SWEEP 8 /* indices at a time, at most */

/* R rows of NV vectors at a: A_ij −= Σ_k Y_ki Y_kj, with Y_ki at yi and Y_kj at yj. */
FSL_INLINE void FN(sweep_tile)(double *a, const double *yi, const double *yj, ptrdiff_t ldp,
                               const int N, const int R, const int NV)
{
    VEC t[4][3];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < NV; v++)
            t[r][v] = FN(load)(a + r * ldp + v * W);
    for (int k = 0; k < N; k++)
        for (int v = 0; v < NV; v++) {
            const VEC y = FN(load)(yj + k * ldp + v * W);
            for (int r = 0; r < R; r++)
                t[r][v] -= yi[k * ldp + r] * y;
        }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < NV; v++)
            FN(store)(a + r * ldp + v * W, t[r][v]);
}

/* R rows from row i on, from the vector with the diagonal to the end. */
FSL_INLINE void FN(sweep_rows)(double *A, const double *Y, ptrdiff_t ldp, int i, const int N,
                               const int R)
{
    double *a = A + i * ldp;
    ptrdiff_t j = i / W * W;
    for (; j + 3 * W <= ldp; j += 3 * W)
        FN(sweep_tile)(a + j, Y + i, Y + j, ldp, N, R, 3);
    if (j + 2 * W <= ldp)
        FN(sweep_tile)(a + j, Y + i, Y + j, ldp, N, R, 2);
    else if (j < ldp)
        FN(sweep_tile)(a + j, Y + i, Y + j, ldp, N, R, 1);
}

/* A_ij −= Σ_k Y_ki Y_kj for the rows from `from` to `to`, on and above the diagonal. */
FSL_INLINE void FN(sweep_range)(double *A, const double *Y, ptrdiff_t ldp, int from, int to,
                                const int N)
{
    int i = from;
    for (; i + 4 <= to; i += 4)
        FN(sweep_rows)(A, Y, ldp, i, N, 4);
    for (; i < to; i++)
        FN(sweep_rows)(A, Y, ldp, i, N, 1);
}

/* ln of a product of pivots, kept as a product for as long as that can't overflow or underflow. */
typedef struct {
    double product, sum;
} FN(pivots);

FSL_INLINE void FN(take_pivot)(FN(pivots) *seen, double p)
{
    const double product = seen->product * p;
    if (product > 1e-300 && product < 1e300) {
        seen->product = product;
    } else {
        seen->sum += log(seen->product);
        seen->product = p;
    }
}

/* R with RᵀR = A_KK from the upper triangle at A, N × FSL_SWEEP, with 1/R_kk on the diagonal.
 * Returns 0, or k + 1 where pivot k is not positive. */
FSL_INLINE int FN(sweep_factor)(const double *A, ptrdiff_t ldp, double *R, FN(pivots) *seen,
                                const int N)
{
    for (int k = 0; k < N; k++) {
        double p = A[k * ldp + k];
        for (int m = 0; m < k; m++)
            p -= R[m * FSL_SWEEP + k] * R[m * FSL_SWEEP + k];
        if (!(p > 0.0 && p < HUGE_VAL))
            return k + 1;
        const double root = 1.0 / sqrt(p);
        FN(take_pivot)(seen, p);
        R[k * FSL_SWEEP + k] = root;
        for (int j = k + 1; j < N; j++) {
            double sum = A[k * ldp + j];
            for (int m = 0; m < k; m++)
                sum -= R[m * FSL_SWEEP + k] * R[m * FSL_SWEEP + j];
            R[k * FSL_SWEEP + j] = root * sum;
        }
    }
    return 0;
}

/* Y ← R⁻ᵀY for N rows of ldp entries. */
FSL_INLINE void FN(sweep_forward)(double *Y, ptrdiff_t ldp, const double *R, const int N)
{
    for (ptrdiff_t j = 0; j < ldp; j += W) {
        VEC y[FSL_SWEEP];
        for (int k = 0; k < N; k++)
            y[k] = FN(load)(Y + k * ldp + j);
#define FSL_STEP(k)                                                                               \
    if (k < N) {                                                                                  \
        y[k] *= R[k * FSL_SWEEP + k];                                                             \
        for (int m = k + 1; m < N; m++)                                                           \
            y[m] -= R[k * FSL_SWEEP + m] * y[k];                                                  \
    }
        FSL_STEPS_UP(FSL_STEP);
#undef FSL_STEP
        for (int k = 0; k < N; k++)
            FN(store)(Y + k * ldp + j, y[k]);
    }
}

/* Y ← R⁻¹Y for N rows of ldp entries. */
FSL_INLINE void FN(sweep_backward)(double *Y, ptrdiff_t ldp, const double *R, const int N)
{
    for (ptrdiff_t j = 0; j < ldp; j += W) {
        VEC y[FSL_SWEEP];
        for (int k = 0; k < N; k++)
            y[k] = FN(load)(Y + k * ldp + j);
#define FSL_STEP(k)                                                                               \
    if (k < N) {                                                                                  \
        y[k] *= R[k * FSL_SWEEP + k];                                                             \
        for (int m = 0; m < k; m++)                                                               \
            y[m] -= R[m * FSL_SWEEP + k] * y[k];                                                  \
    }
        FSL_STEPS_DOWN(FSL_STEP);
#undef FSL_STEP
        for (int k = 0; k < N; k++)
            FN(store)(Y + k * ldp + j, y[k]);
    }
}

/* Sweep the N indices from `first` on. Returns 0, or i + 1 where pivot i is not positive. */
FSL_INLINE int FN(sweep)(double *A, ptrdiff_t ldp, int d, int first, FN(pivots) *seen, const int N)
{
    double R[FSL_SWEEP * FSL_SWEEP];
    double *Y = A + first * ldp;
    const int failed = FN(sweep_factor)(Y + first, ldp, R, seen, N);
    if (failed)
        return first + failed;
    for (int j = 0; j < first; j++)
        for (int k = 0; k < N; k++)
            Y[k * ldp + j] = A[j * ldp + first + k];
    for (int k = 0; k < N; k++) /* −I in place of A_KK, so that it becomes −R⁻¹R⁻ᵀ */
        for (int j = 0; j < N; j++)
            Y[k * ldp + first + j] = k == j ? -1.0 : 0.0;
    FN(sweep_forward)(Y, ldp, R, N);
    FN(sweep_range)(A, Y, ldp, 0, first, N);
    FN(sweep_range)(A, Y, ldp, first + N, d, N);
    FN(sweep_backward)(Y, ldp, R, N);
    for (int j = 0; j < first; j++)
        for (int k = 0; k < N; k++)
            A[j * ldp + first + k] = Y[k * ldp + j];
    return 0;
}

/* Each number of indices is a function of its own, as the compiler unrolls all of it. */
#define FSL_SWEEP_OF(N)                                                                           \
    static FSL_NOINLINE FSL_TARGET int FN(sweep_##N)(double *A, ptrdiff_t ldp, int d, int first,  \
                                                     FN(pivots) *seen)                            \
    {                                                                                             \
        return FN(sweep)(A, ldp, d, first, seen, N);                                              \
    }
FSL_SWEEP_OF(8)
FSL_SWEEP_OF(4)
FSL_SWEEP_OF(2)
FSL_SWEEP_OF(1)
#undef FSL_SWEEP_OF

static FSL_TARGET int FN(invert)(double *A, ptrdiff_t ldp, int d, double *u, double *log_det)
{
    FN(pivots) seen = {1.0, 0.0};
    int failed = 0, k = 0;
    (void)u;
    for (; !failed && k + 8 <= d; k += 8)
        failed = FN(sweep_8)(A, ldp, d, k, &seen);
    for (; !failed && k + 4 <= d; k += 4)
        failed = FN(sweep_4)(A, ldp, d, k, &seen);
    for (; !failed && k + 2 <= d; k += 2)
        failed = FN(sweep_2)(A, ldp, d, k, &seen);
    if (!failed && k < d)
        failed = FN(sweep_1)(A, ldp, d, k, &seen);
    if (failed)
        return failed;
    for (int from = 0; from < d; from += 8) /* eight rows at a time: whole cache lines below */
        for (int j = from; j < d; j++)
            for (int i = from; i < d && i < from + 8 && i <= j; i++)
                A[j * ldp + i] = A[i * ldp + j] = -A[i * ldp + j];
    *log_det = seen.sum + log(seen.product);
    return 0;
}
#undef FSL_SWEEP

/* Gaussian elimination of bound·I − P on the upper triangle: if it is positive definite, all pivots
 * are positive. */
static FSL_TARGET int FN(below)(const double *P, ptrdiff_t ldp, int d, double bound, double *A,
                                double *u)
{
    for (ptrdiff_t i = 0; i < d * ldp; i++)
        A[i] = -P[i];
    for (int k = 0; k < d; k++) {
        const double p = A[k * ldp + k] + bound;
        if (!(p > 0.0))
            return 0;
        const double root = 1.0 / sqrt(p);
        for (ptrdiff_t j = k / W * W; j < ldp; j++)
            u[j] = root * A[k * ldp + j];
        for (int i = k + 1; i < d; i++)
            for (ptrdiff_t j = i / W * W; j < ldp; j += W)
                FN(store)(A + i * ldp + j, FN(load)(A + i * ldp + j) - u[i] * FN(load)(u + j));
    }
    return 1;
}

static FSL_TARGET double FN(peak)(long n, double *sink)
{
    VEC x[12];
    const VEC a = FN(splat)(0.999), b = FN(splat)(1e-9);
    for (int i = 0; i < 12; i++)
        x[i] = FN(splat)((double)i);
    for (long k = 0; k < n; k++)
        for (int i = 0; i < 12; i++)
            x[i] = x[i] * a + b;
    for (int i = 0; i < 12; i++)
        *sink += ((const double *)&x[i])[0];
    return 2.0 * 12 * W * (double)n;
}

#define FSL_SET(proofs)                                                                           \
    {                                                                                             \
        FSL_STRING(FSL_SUFFIX), LANES, &proofs, FN(pad), FN(norms), FN(products), FN(estimates),  \
            FN(screen_first), FN(screen), FN(keep_near_best), FN(first_of_largest),               \
            FN(move_together), FN(matvec), FN(add_outer), FN(add_outer_upper), FN(dot),           \
            FN(invert), FN(below), FN(peak),                                                      \
    }
static const fsl_kernel_set FN(set) = FSL_SET(FSL_PROOFS);
#ifdef FSL_BEST_PROOFS
static const fsl_kernel_set FN(best_set) = FSL_SET(FSL_BEST_PROOFS);
#endif

#undef FSL_JOIN_
#undef FSL_JOIN
#undef FSL_STRING_
#undef FSL_STRING
#undef FN
#undef VEC
#undef TRUTH
#undef W
#undef LANES
#undef FSL_STEPS_UP
#undef FSL_STEPS_DOWN
#undef FSL_IN_REGISTER
#undef FSL_INLINE
#undef FSL_NOINLINE
#undef FSL_SUFFIX
#undef FSL_WIDTH
#undef FSL_TARGET
#undef FSL_PROOFS
#undef FSL_BEST_PROOFS
#undef FSL_SET
#undef FSL_X86
