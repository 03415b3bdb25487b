/* One token of each text through a model: a list of operations, run one after the other.

Rows are texts. A stream of width w is rows x w float32 numbers; row r of an operand begins at
r * stride numbers (stride 0: the same numbers for all rows). Buffers that operations write have
room for one vector more than they hold. Plain vector types of GCC and Clang, no intrinsics. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
#define W 16 /* numbers in a vector */
#define OUTPUTS 6 /* of a tile of 4 rows: 24 sums, 6 weights and an input fit into 32 registers */
#elif defined(__AVX__)
#define W 8
#define OUTPUTS 2
#else
#define W 4
#define OUTPUTS 2
#endif
#define BLOCK 24 /* outputs that one thread takes at a time: a multiple of OUTPUTS */
#define LARGE 65536 /* multiplications that are worth a second thread */
#define INLINE static inline __attribute__((always_inline))

typedef float Vector __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef int32_t Integers __attribute__((vector_size(4 * W), aligned(4), may_alias));

enum { PRODUCT, NORM, GELU, GELU_TANH, SWIGLU, KEEP, ROTATE, ATTEND, ADD, SUBTRACT, MULTIPLY, DIVIDE };

typedef struct {
    int64_t code, width, inner, groups;
    const float *a, *b, *c;
    float *out;
    int64_t a_stride, b_stride, out_stride;
} Operation;

INLINE Vector load(const float *x) { return *(const Vector *)x; }
INLINE void store(float *x, Vector v) { *(Vector *)x = v; }
INLINE Vector all(float x) { return (Vector){0} + x; }

INLINE Vector choose(Integers where, Vector yes, Vector no) {
    return (Vector)(((Integers)yes & where) | ((Integers)no & ~where));
}

INLINE float total(Vector v) {
    union { Vector v; float x[W]; } u = {v};
    for (int half = W / 2; half; half /= 2)
        for (int i = 0; i < half; i++) u.x[i] += u.x[i + half];
    return u.x[0];
}

/* The last numbers of a product, fewer than a vector. */
static __attribute__((noinline)) float rest(const float *x, const float *y, int64_t n) {
    float sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* Four sums hide the time that an addition takes. */
static __attribute__((noinline)) float dot(const float *x, const float *y, int64_t n) {
    Vector s = {0}, t = {0}, u = {0}, v = {0};
    int64_t i = 0;
    for (; i + 4 * W <= n; i += 4 * W) {
        s += load(x + i) * load(y + i);
        t += load(x + i + W) * load(y + i + W);
        u += load(x + i + 2 * W) * load(y + i + 2 * W);
        v += load(x + i + 3 * W) * load(y + i + 3 * W);
    }
    for (; i + W <= n; i += W) s += load(x + i) * load(y + i);
    const float sum = total((s + t) + (u + v));
    return i < n ? sum + rest(x + i, y + i, n - i) : sum;
}

/* out[r][o] = x[r] . w[o]: each weight is read once for all rows of a tile. */
INLINE void tile(const int rows, const int outputs, const float *x, int64_t x_stride,
                 const float *w, float *out, int64_t out_stride, int64_t n) {
    Vector sums[4][OUTPUTS];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 6
        for (int o = 0; o < outputs; o++) sums[r][o] = (Vector){0};
    int64_t i = 0;
    for (; i + W <= n; i += W) {
        Vector weights[OUTPUTS];
#pragma GCC unroll 6
        for (int o = 0; o < outputs; o++) {
            weights[o] = load(w + o * n + i);
            __builtin_prefetch(w + (o + outputs) * n + i);
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            Vector input = load(x + r * x_stride + i);
#pragma GCC unroll 6
            for (int o = 0; o < outputs; o++) sums[r][o] += weights[o] * input;
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 6
        for (int o = 0; o < outputs; o++) {
            float sum = total(sums[r][o]);
            if (i < n) sum += rest(x + r * x_stride + i, w + o * n + i, n - i);
            out[r * out_stride + o] = sum;
        }
}

static void block(const Operation *op, int64_t rows, int64_t first, int64_t end) {
    const int64_t n = op->inner;
    int64_t o = first;
    if (rows > 1)
        for (; o + OUTPUTS <= end; o += OUTPUTS)
            for (int64_t r = 0; r < rows; r += 4) {
                const float *x = op->a + r * op->a_stride, *w = op->b + o * n;
                float *out = op->out + r * op->out_stride + o;
                switch (rows - r) {
                case 1: tile(1, OUTPUTS, x, op->a_stride, w, out, op->out_stride, n); break;
                case 2: tile(2, OUTPUTS, x, op->a_stride, w, out, op->out_stride, n); break;
                case 3: tile(3, OUTPUTS, x, op->a_stride, w, out, op->out_stride, n); break;
                default: tile(4, OUTPUTS, x, op->a_stride, w, out, op->out_stride, n);
                }
            }
    for (; o < end; o++)
        for (int64_t r = 0; r < rows; r++)
            op->out[r * op->out_stride + o] = dot(op->a + r * op->a_stride, op->b + o * n, n);
    if (op->c)
        for (int64_t r = 0; r < rows; r++)
            for (o = first; o < end; o++) op->out[r * op->out_stride + o] += op->c[o];
}

static void product(const Operation *op, int64_t rows) {
    const int64_t width = op->width;
#pragma omp parallel for schedule(static) if (rows * width * op->inner >= LARGE)
    for (int64_t first = 0; first < width; first += BLOCK)
        block(op, rows, first, first + BLOCK < width ? first + BLOCK : width);
}

/* LayerNorm, or RMSNorm where ``inner`` is 0; b and c are gain and bias, if there are any. */
static void norm(const Operation *op, int64_t rows) {
    const int64_t n = op->width;
    for (int64_t r = 0; r < rows; r++) {
        const float *x = op->a + r * op->a_stride;
        float *out = op->out + r * op->out_stride;
        float mean = 0;
        if (op->inner) {
            Vector sum = {0};
            int64_t i = 0;
            for (; i + W <= n; i += W) sum += load(x + i);
            mean = total(sum);
            for (; i < n; i++) mean += x[i];
            mean /= (float)n;
        }
        for (int64_t i = 0; i < n; i++) out[i] = x[i] - mean;
        const float scale = 1.0f / __builtin_sqrtf(dot(out, out, n) / (float)n + 1e-5f);
        for (int64_t i = 0; i < n; i++) out[i] *= scale;
        if (op->b)
            for (int64_t i = 0; i < n; i++) out[i] *= op->b[i];
        if (op->c)
            for (int64_t i = 0; i < n; i++) out[i] += op->c[i];
    }
}

/* e^x to the last digit or two, from 2^n e^r with |r| <= ln(2)/2; below -87 it is about 0. */
INLINE Vector exponential(Vector x) {
    x = choose(x < -87.0f, all(-87.0f), x); /* what is not a number stays so */
    x = choose(x > 88.0f, all(88.0f), x);
    const Vector magic = all(12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number */
    const Vector shifted = x * 1.44269504f + magic, whole = shifted - magic;
    const Vector r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    Vector p = all(1.0f / 5040);
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    union { Vector v; Integers i; } power = {shifted};
    power.i = (power.i - 0x4B400000 + 127) << 23;
    return p * power.v;
}

INLINE Vector logistic(Vector x) { return 1.0f / (1.0f + exponential(-x)); }

/* The error function by Abramowitz and Stegun, 7.1.26: within 1.5e-7. */
INLINE Vector gelu(Vector x) {
    const Vector z = x * 0.70710678f, size = choose(z < 0.0f, -z, z);
    const Vector t = 1.0f / (1.0f + 0.3275911f * size);
    Vector p = all(1.061405429f);
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const Vector tail = p * t * exponential(-size * size);
    return 0.5f * x * choose(z < 0.0f, tail, 2.0f - tail);
}

INLINE Vector gelu_tanh(Vector x) {
    return x * logistic(1.59576912f * (x + 0.044715f * x * x * x));
}

#define EACH(value)                                              \
    for (int64_t i = 0; i < rows * op->width; i += W) {          \
        const Vector x = load(op->a + i);                        \
        store(op->out + i, value);                               \
    }

/* The result may take the place of an operand. */
#define PAIRS(operator)                                                              \
    for (int64_t r = 0; r < rows; r++) {                                             \
        const float *a = op->a + r * op->a_stride, *b = op->b + r * op->b_stride;    \
        float *out = op->out + r * op->out_stride;                                   \
        int64_t i = 0;                                                               \
        for (; i + W <= op->width; i += W) store(out + i, load(a + i) operator load(b + i)); \
        for (; i < op->width; i++) out[i] = a[i] operator b[i];                      \
    }

/* New keys or values of ``inner`` heads into their place, (row, head, token, width). */
static void keep(const Operation *op, int64_t rows, int64_t length) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < op->inner; h++)
            memcpy(op->out + ((r * op->inner + h) * op->b_stride + length) * op->width,
                   op->a + r * op->a_stride + h * op->width, sizeof(float) * (size_t)op->width);
}

/* Pairs (x[i], x[i + width/2]) of each head, in place, by angles whose cosines and sines b holds. */
static void rotate(const Operation *op, int64_t rows) {
    const int64_t half = op->width / 2;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < op->inner; h++) {
            float *x = op->out + r * op->out_stride + h * op->width;
            const float *cosine = op->b + r * op->b_stride, *sine = cosine + half;
            for (int64_t i = 0; i < half; i++) {
                const float first = x[i], second = x[i + half];
                x[i] = first * cosine[i] - second * sine[i];
                x[i + half] = second * cosine[i] + first * sine[i];
            }
        }
}

/* out += shares[0] values[0] + ... of up to four keys. */
INLINE void add_shares(const float *share, const float *values, float *restrict out, int64_t keys,
                       int64_t width) {
    if (keys == 4)
        for (int64_t i = 0; i < width; i++)
            out[i] += (share[0] * values[i] + share[1] * values[width + i]) +
                      (share[2] * values[2 * width + i] + share[3] * values[3 * width + i]);
    else
        for (int64_t j = 0; j < keys; j++)
            for (int64_t i = 0; i < width; i++) out[i] += share[j] * values[j * width + i];
}

/* One head of one row: softmax of the scores of n keys, and the mean of the values. */
static void head(const float *q, const float *keys, const float *values, float *out, int64_t n,
                 int64_t width, float *scores) {
    const float scale = 1.0f / __builtin_sqrtf((float)width);
    int64_t j = 0;
    for (; j + OUTPUTS <= n; j += OUTPUTS)
        tile(1, OUTPUTS, q, 0, keys + j * width, scores + j, 0, width);
    for (; j < n; j++) scores[j] = dot(q, keys + j * width, width);
    float largest = -__builtin_inff(), sum = 0;
    for (j = 0; j < n; j++) {
        scores[j] *= scale;
        largest = scores[j] > largest ? scores[j] : largest;
    }
    for (j = 0; j < n; j += W) store(scores + j, exponential(load(scores + j) - largest));
    for (j = 0; j < n; j++) sum += scores[j];
    for (j = 0; j < n; j++) scores[j] /= sum;
    memset(out, 0, sizeof(float) * (size_t)width);
    for (j = 0; j < n; j += 4)
        add_shares(scores + j, values + j * width, out, n - j < 4 ? n - j : 4, width);
}

/* ``inner`` query heads, ``groups`` heads of keys and values. Padding stands before a row. */
static void attend(const Operation *op, int64_t rows, int64_t length, const int64_t *pads) {
    const int64_t heads = op->inner, shared = heads / op->groups, size = op->b_stride;
#pragma omp parallel for schedule(static) if (rows * heads * op->width * length >= LARGE)
    for (int64_t each = 0; each < rows * heads; each++) {
        const int64_t r = each / heads, h = each % heads, first = pads ? pads[r] : 0;
        const int64_t n = length + 1 - first;
        const int64_t start = ((r * op->groups + h / shared) * size + first) * op->width;
        float *scores = calloc((size_t)(n + W), sizeof(float));
        head(op->a + r * op->a_stride + h * op->width, op->b + start, op->c + start,
             op->out + r * op->out_stride + h * op->width, n, op->width, scores);
        free(scores);
    }
}

void run(const Operation *op, int64_t count, int64_t rows, int64_t length, const int64_t *pads) {
    for (const Operation *end = op + count; op < end; op++) switch (op->code) {
        case PRODUCT: product(op, rows); break;
        case NORM: norm(op, rows); break;
        case GELU: EACH(gelu(x)) break;
        case GELU_TANH: EACH(gelu_tanh(x)) break;
        case SWIGLU: EACH(x * logistic(x) * load(op->b + i)) break;
        case KEEP: keep(op, rows, length); break;
        case ROTATE: rotate(op, rows); break;
        case ATTEND: attend(op, rows, length, pads); break;
        case ADD: PAIRS(+) break;
        case SUBTRACT: PAIRS(-) break;
        case MULTIPLY: PAIRS(*) break;
        case DIVIDE: PAIRS(/) break;
        }
}
