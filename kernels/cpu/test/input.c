#include "test.h"

#define SENTINEL 0x5ca1ab1e

uint64_t random_state = 20240229;

static uint32_t bits(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static int64_t below(int64_t n) { return n > 0 ? bits() % n : 0; }
static float uniform(void) { return (float)bits() * 0x1p-31f - 1; }

void *must_alloc(size_t bytes) {
    void *p = malloc(bytes > 0 ? bytes : 1);
    if (p == NULL)
        exit(2);
    return p;
}

float *guarded(int64_t n, const float *from) {
    uint32_t *whole = must_alloc((size_t)(n + 2 * GUARD) * 4);
    for (int64_t i = 0; i < n + 2 * GUARD; i++)
        whole[i] = SENTINEL;
    if (from != NULL)
        memcpy(whole + GUARD, from, (size_t)n * 4);
    return (float *)(void *)whole + GUARD;
}

int intact(const float *p, int64_t n) {
    for (int64_t i = 0; i < GUARD; i++) {
        uint32_t before, after;
        memcpy(&before, p - GUARD + i, 4);
        memcpy(&after, p + n + i, 4);
        if (before != SENTINEL || after != SENTINEL)
            return 0;
    }
    return 1;
}

float *floats(int64_t n) {
    float *p = must_alloc((size_t)n * 4);
    for (int64_t i = 0; i < n; i++)
        p[i] = uniform();
    return p;
}

const shape shapes[] = {
    {"no segments", 0, 4, 3, 8},
    {"no edges", 4, 4, 0, 8},
    {"one row", 1, 1, 1, 16},
    {"one feature", 16, 64, 5, 1},
    {"narrower than a vector", 9, 33, 4, 7},
    {"one vector", 16, 64, 5, 16},
    {"width no multiple of a vector", 16, 64, 5, 37},
    {"one more than a strip", 7, 40, 3, 257},
    {"products", 513, 900, 11, 100},
    {"hub", 5, 1000, -1, 64},
    {"reddit", 13, 50, 6, 602},
    {"even strips", 33, 70, 4, 512},
    {"one more than a panel of int8 rows", 3, 12, 4, 4097},
    {0},
};

static void build_edges(input *in) {
    const shape *s = in->s;
    in->indptr = must_alloc((size_t)(s->segments + 1) * 8);
    in->indptr[0] = 0;
    for (int64_t d = 0; d < s->segments; d++) {
        const int64_t degree = s->degree >= 0 ? below(2 * s->degree + 1) : d == 1 ? s->sources : 0;
        in->indptr[d + 1] = in->indptr[d] + degree;
    }
    in->edges = in->indptr[s->segments];
    in->indices = must_alloc((size_t)in->edges * 4);
    in->t_indptr = calloc((size_t)s->sources + 2, 8);
    in->t_indices = must_alloc((size_t)in->edges * 4);
    in->t_edges = must_alloc((size_t)in->edges * 4);
    in->grouped = must_alloc((size_t)in->edges * 4);
    for (int64_t e = 0; e < in->edges; e++) {
        in->indices[e] = (int32_t)below(s->sources);
        in->grouped[e] = below(3) == 0 ? ~in->indices[e] : in->indices[e];
        in->t_indptr[in->indices[e] + 2]++;
    }
    for (int64_t i = 1; i < s->sources; i++)
        in->t_indptr[i + 1] += in->t_indptr[i];
    for (int64_t d = 0; d < s->segments; d++)
        for (int64_t e = in->indptr[d]; e < in->indptr[d + 1]; e++) {
            const int64_t at = in->t_indptr[in->indices[e] + 1]++;
            in->t_indices[at] = (int32_t)d;
            in->t_edges[at] = (int32_t)e;
        }
}

input build(const shape *s) {
    input in = {.s = s, .cells = s->segments * s->cols};
    const int64_t stored = s->sources * s->cols;
    const int64_t narrow = stored + s->cols; /* the last row may be read as twice as long */
    build_edges(&in);
    in.h = floats(stored);
    in.x = floats(in.cells);
    in.dy = floats(in.cells);
    in.weights = floats(in.edges);
    in.gamma = floats(s->cols);
    in.beta = floats(s->cols);
    in.half = must_alloc((size_t)narrow * 2);
    for (int64_t i = 0; i < narrow; i++)
        in.half[i] = (uint16_t)(bits() % 0x7c00 | (bits() & 1) << 15); /* finite, subnormals too */
    in.bytes = must_alloc((size_t)narrow);
    for (int64_t i = 0; i < narrow; i++)
        in.bytes[i] = (int8_t)(bits() % 255 - 127);
    in.scale = floats(s->cols);
    in.refs = must_alloc((size_t)s->sources * 8);
    in.ids = must_alloc((size_t)s->sources * 4);
    const int64_t part = s->sources / TABLES;
    for (int t = 0; t < TABLES; t++) {
        const int64_t rows = t < TABLES - 1 ? part : s->sources - part * (TABLES - 1);
        in.tables[t] = (halognn_table){in.h + t * part * s->cols, rows};
        in.half_tables[t] = (halognn_table){in.half + t * part * s->cols, rows};
        in.byte_tables[t] = (halognn_table){in.bytes + t * part * s->cols, rows};
    }
    for (int64_t i = 0; i < s->sources; i++) {
        int t = (int)below(TABLES);
        if (in.tables[t].rows == 0)
            t = TABLES - 1;
        in.refs[i] = (uint64_t)t << HALOGNN_REF_ROW_BITS | (uint64_t)below(in.tables[t].rows);
        in.ids[i] = (int32_t)below(s->sources);
    }
    return in;
}

void release(input *in) {
    void *all[] = {in->indptr, in->t_indptr, in->indices, in->grouped, in->t_indices,
                   in->ids,    in->h,        in->x,       in->dy,      in->gamma,
                   in->beta,   in->half,     in->refs,    in->weights, in->t_edges,
                   in->bytes,  in->scale};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

outputs one(int64_t n, const float *from) {
    return (outputs){.at = {guarded(n, from)}, .len = {n}};
}

float *coarse(const input *in) {
    const int64_t n = in->s->sources * in->s->cols;
    float *h = must_alloc((size_t)n * 4);
    for (int64_t i = 0; i < n; i++)
        h[i] = i % 101 == 100 ? NAN : nearbyintf(2 * in->h[i]);
    return h;
}

halognn_elements elements_of(const input *in, int bytes, int64_t wide, int wide_bytes) {
    return (halognn_elements){bytes, wide_bytes, wide, bytes == 1 ? in->scale : NULL, 0};
}

const halognn_table *tables_of(const input *in, int bytes) {
    return bytes == 1 ? in->byte_tables : bytes == 2 ? in->half_tables : in->tables;
}
