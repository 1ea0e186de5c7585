/* Draws by numbers of vertices. */
#include "test.h"

enum { FANOUT = 5 };

/* The sources of each segment are its row; the original ids are the ids in reverse order. The
 * plain kernel draws what a level leaves out, as the caller does. Many numbers are equal,
 * because a table has fewer numbers than vertices, and there are parallel edges. */
static outputs draw(const halognn_cpu *k, const input *in, int table, int places, uint64_t turn) {
    const int64_t n = in->s->segments, vertices = in->s->sources;
    uint32_t *const numbers = must_alloc((size_t)(vertices + 1) * 4);
    int32_t *const original = must_alloc((size_t)(vertices + 1) * 4);
    int64_t *const degree = must_alloc((size_t)(n + 1) * 8), edges = 0;
    for (int64_t v = 0; v < vertices; v++) {
        original[v] = (int32_t)(vertices - v);
        numbers[v] = (uint32_t)((uint64_t)v * 7919 % (uint64_t)(vertices / 2 + 1)) << 20;
    }
    for (int64_t i = 0; i < n; i++) {
        degree[i] = in->indptr[i + 1] - in->indptr[i];
        edges += degree[i] < FANOUT ? degree[i] : FANOUT;
    }
    const halognn_numbers of = {table ? numbers : NULL, original, vertices, 11, 22, 33, turn, 4};
    const outputs o = {.at = {guarded(edges, NULL), guarded(edges * 2, NULL)},
                       .len = {edges, edges * 2}};
    int32_t *drawn = (int32_t *)o.at[0];
    int64_t *const positions = must_alloc((size_t)(edges + 1) * 8);
    memset(positions, 0, (size_t)(edges + 1) * 8);
    for (int64_t i = 0, at = 0, done; i < n;) {
        for (int plain = 0; plain < 2 && i < n; plain++) {
            halognn_draw_least(plain ? halognn_cpu_open("scalar") : k, &done,
                               drawn + at, edges - at,
                               places ? positions + at : NULL, plain ? 1 : n - i,
                               in->indptr + i, degree + i, FANOUT, in->indices, in->edges, of);
            for (; done > 0; done--, i++)
                at += degree[i] < FANOUT ? degree[i] : FANOUT;
        }
    }
    memcpy(o.at[1], positions, (size_t)edges * 8);
    free(positions);
    free(degree);
    free(original);
    free(numbers);
    return o;
}
static outputs draw_table(const halognn_cpu *k, const input *in) { return draw(k, in, 1, 1, 0); }
static outputs draw_alone(const halognn_cpu *k, const input *in) { return draw(k, in, 1, 0, 0); }
static outputs draw_mixed(const halognn_cpu *k, const input *in) { return draw(k, in, 0, 1, 0); }
static outputs draw_lasting(const halognn_cpu *k, const input *in) { return draw(k, in, 0, 1, 2); }

const test draw_tests[] = {
    {"draw_least table", draw_table, 0},
    {"draw_least mixed", draw_mixed, 0},
    {"draw_least without positions", draw_alone, 0},
    {"draw_least lasting", draw_lasting, 0},
    {0},
};
