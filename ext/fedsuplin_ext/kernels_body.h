/* The kernels themselves. kernels_dispatch.h includes this file once for each instruction set
 * (FSL_SUFFIX, FSL_WIDTH doubles per vector, FSL_TARGET), which is why it has no include guard. */

#define FSL_JOIN_(a, b) a##_##b
#define FSL_JOIN(a, b) FSL_JOIN_(a, b)
#define FN(name) FSL_JOIN(fsl_##name, FSL_SUFFIX)
#define FSL_STRING_(a) #a
#define FSL_STRING(a) FSL_STRING_(a)

#if FSL_WIDTH > 1
typedef double FN(vec) __attribute__((vector_size(FSL_WIDTH * 8), aligned(8), may_alias));
#define FSL_INLINE static inline __attribute__((always_inline)) FSL_TARGET
#define FSL_NOINLINE __attribute__((noinline))
#else
typedef double FN(vec);
#define FSL_INLINE static inline
#define FSL_NOINLINE
#endif
#define VEC FN(vec)
#define W FSL_WIDTH

FSL_INLINE VEC FN(load)(const double *p) { return *(const VEC *)p; }
FSL_INLINE void FN(store)(double *p, VEC v) { *(VEC *)p = v; }
FSL_INLINE VEC FN(splat)(double a)
{
    VEC v = {0};
    return v + a;
}

/* t_r += Σ_j P_{i+r, j} x_j over columns j of the R rows at p. R × NV accumulators share the loads
 * of x_j and hide the latency of the multiply-adds. */
FSL_INLINE void FN(norm_columns)(const double *p, ptrdiff_t ldp, const double *X, ptrdiff_t ldx,
                                 int from, int to, VEC t[8][4], const int R, const int NV)
{
    for (int j = from; j < to; j++)
        for (int v = 0; v < NV; v++) {
            const VEC xj = FN(load)(X + j * ldx + v * W);
            for (int r = 0; r < R; r++)
                t[r][v] += p[r * ldp + j] * xj;
        }
}

/* R rows of one block of arms: x_iᵀ(2 Σ_{j<i} P_ij x_j + Σ_{j in the block} P_ij x_j). So only half
 * of the matrix is read, and the diagonal block is a loop like the rest. */
FSL_INLINE void FN(norm_rows)(const double *P, ptrdiff_t ldp, const double *theta, const double *X,
                              ptrdiff_t ldx, int i, VEC *q, VEC *e, const int R, const int NV)
{
    VEC t[8][4];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < NV; v++)
            t[r][v] = FN(splat)(0.0);
    FN(norm_columns)(P + i * ldp, ldp, X, ldx, 0, i, t, R, NV);
    for (int r = 0; r < R; r++)
        for (int v = 0; v < NV; v++)
            t[r][v] += t[r][v];
    FN(norm_columns)(P + i * ldp, ldp, X, ldx, i, i + R, t, R, NV);
    for (int v = 0; v < NV; v++) {
        VEC even = FN(splat)(0.0), sum = FN(splat)(0.0);
        for (int r = 0; r < R; r++) {
            const VEC xi = FN(load)(X + (i + r) * ldx + v * W);
            if (r % 2)
                q[v] += t[r][v] * xi;
            else
                even += t[r][v] * xi;
            sum += theta[i + r] * xi;
        }
        q[v] += even;
        e[v] += sum;
    }
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
        FN(store)(width + v * W, q[v]);
        FN(store)(estimate + v * W, e[v]);
    }
    for (int a = 0; a < NV * W; a++)
        width[a] = radius * sqrt(width[a] > 0.0 ? width[a] : 0.0);
}

/* Each block shape is a function of its own: in one function the compiler runs out of registers. */
#define FSL_NORM_BLOCK(name, R, NV)                                                               \
    static FSL_NOINLINE FSL_TARGET void FN(name)(                                                 \
        const double *P, ptrdiff_t ldp, const double *theta, const double *X, ptrdiff_t ldx,      \
        int d, double radius, double *width, double *estimate)                                    \
    {                                                                                             \
        FN(norm_block)(P, ldp, theta, X, ldx, d, radius, width, estimate, R, NV);                 \
    }
FSL_NORM_BLOCK(norm_block_1, 8, 1)
FSL_NORM_BLOCK(norm_block_2, 4, 2)
FSL_NORM_BLOCK(norm_block_3, 3, 3)
#undef FSL_NORM_BLOCK

static FSL_TARGET void FN(norms)(const double *P, ptrdiff_t ldp, const double *theta,
                                 const double *X, ptrdiff_t ldx, int d, int lanes, double radius,
                                 double *width, double *estimate)
{
    int a = 0;
    /* three vectors at once: an odd one alone would cost as much as two */
    if (lanes >= 3 * W && lanes % (2 * W) == W) {
        FN(norm_block_3)(P, ldp, theta, X, ldx, d, radius, width, estimate);
        a = 3 * W;
    }
    for (; a + 2 * W <= lanes; a += 2 * W)
        FN(norm_block_2)(P, ldp, theta, X + a, ldx, d, radius, width + a, estimate + a);
    for (; a < lanes; a += W)
        FN(norm_block_1)(P, ldp, theta, X + a, ldx, d, radius, width + a, estimate + a);
}

FSL_INLINE void FN(estimate_block)(const double *theta, const double *X, ptrdiff_t ldx, int d,
                                   double *estimate, const int NV)
{
    VEC even[4], odd[4];
    int i = 0;
    for (int v = 0; v < NV; v++)
        even[v] = odd[v] = FN(splat)(0.0);
    for (; i + 2 <= d; i += 2)
        for (int v = 0; v < NV; v++) {
            even[v] += theta[i] * FN(load)(X + i * ldx + v * W);
            odd[v] += theta[i + 1] * FN(load)(X + (i + 1) * ldx + v * W);
        }
    if (i < d)
        for (int v = 0; v < NV; v++)
            even[v] += theta[i] * FN(load)(X + i * ldx + v * W);
    for (int v = 0; v < NV; v++)
        FN(store)(estimate + v * W, even[v] + odd[v]);
}

static FSL_TARGET void FN(estimates)(const double *theta, const double *X, ptrdiff_t ldx, int d,
                                     int lanes, double *estimate)
{
    int a = 0;
    for (; a + 4 * W <= lanes; a += 4 * W)
        FN(estimate_block)(theta, X + a, ldx, d, estimate + a, 4);
    for (; a < lanes; a += W)
        FN(estimate_block)(theta, X + a, ldx, d, estimate + a, 1);
}

/* Plain loops over FSL_LANES independent values, which compilers turn into vector maxima and blends
 * by themselves. */
static FSL_TARGET double FN(largest)(const double *value, const double *width, double sign,
                                     const double *out, int lanes)
{
    double m[FSL_LANES];
    for (int l = 0; l < FSL_LANES; l++)
        m[l] = -HUGE_VAL;
    for (int a = 0; a < lanes; a += FSL_LANES)
        for (int l = 0; l < FSL_LANES; l++) {
            const double x = value[a + l] + sign * width[a + l] + out[a + l];
            m[l] = x > m[l] ? x : m[l];
        }
    for (int l = 1; l < FSL_LANES; l++)
        m[0] = m[l] > m[0] ? m[l] : m[0];
    return m[0];
}

static FSL_TARGET int FN(keep)(const double *value, const double *width, double sign,
                               double threshold, double *out, int lanes)
{
    double left = 0.0;
    for (int a = 0; a < lanes; a++)
        out[a] = value[a] + sign * width[a] >= threshold ? out[a] : -HUGE_VAL;
    for (int a = 0; a < lanes; a++)
        left += out[a] == 0.0 ? 1.0 : 0.0;
    return (int)left;
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

static FSL_TARGET void FN(matvec)(const double *P, ptrdiff_t ldp, const double *x, int d, double *y)
{
    ptrdiff_t i = 0;
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
    double total = 0.0;
    for (ptrdiff_t i = 0; i < n; i += W)
        s += FN(load)(x + i) * FN(load)(y + i);
    for (int v = 0; v < W; v++)
        total += ((const double *)&s)[v];
    return total;
}

/* The sweep operator on each index in turn: A ← A − a_k a_kᵀ/p, then row and column k become a_k/p
 * and the pivot −1/p; after all of them A holds −A⁻¹. The pivots are those of Cholesky. All work is
 * in the rank-one kernel, on the upper triangle: row k right of the diagonal, column k above it.
 * At these sizes that is faster than LAPACK, whose threads would slow parallel runs down and whose
 * bits depend on the number of threads. */
static FSL_TARGET int FN(invert)(double *A, ptrdiff_t ldp, int d, double *u, double *log_det)
{
    double total = 0.0;
    for (int k = 0; k < d; k++) {
        const double p = A[k * ldp + k];
        if (!(p > 0.0 && p < HUGE_VAL))
            return k + 1;
        const double root = 1.0 / sqrt(p);
        total += log(p);
        for (int j = 0; j < k; j++)
            u[j] = root * A[j * ldp + k];
        for (ptrdiff_t j = k; j < ldp; j++)
            u[j] = root * A[k * ldp + j];
        FN(add_outer_upper)(A, A, ldp, u, -1.0, d);
        for (int i = 0; i < k; i++)
            A[i * ldp + k] = root * u[i];
        for (int j = k + 1; j < d; j++)
            A[k * ldp + j] = root * u[j];
        A[k * ldp + k] = -1.0 / p;
    }
    for (int i = 0; i < d; i++)
        for (int j = i; j < d; j++)
            A[j * ldp + i] = A[i * ldp + j] = -A[i * ldp + j];
    *log_det = total;
    return 0;
}

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

static const fsl_kernel_set FN(set) = {
    FSL_STRING(FSL_SUFFIX), FN(norms), FN(estimates), FN(largest), FN(keep), FN(matvec),
    FN(add_outer), FN(add_outer_upper), FN(dot), FN(invert), FN(below), FN(peak),
};

#undef FSL_JOIN_
#undef FSL_JOIN
#undef FSL_STRING_
#undef FSL_STRING
#undef FN
#undef VEC
#undef W
#undef FSL_INLINE
#undef FSL_NOINLINE
#undef FSL_SUFFIX
#undef FSL_WIDTH
#undef FSL_TARGET
