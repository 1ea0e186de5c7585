#include <string.h>

#include "kernels.h"

static uint64_t mix_word(uint64_t x) {
    x = (x ^ x >> 30) * HALOGNN_MIX_1;
    x = (x ^ x >> 27) * HALOGNN_MIX_2;
    return x ^ x >> 31;
}

static uint32_t number_of(const halognn_numbers *of, int32_t original) {
    const uint64_t id = (uint32_t)original;
    const uint64_t phase = (mix_word(of->phases ^ id) >> 32) * of->lasts >> 32;
    const uint64_t word = of->turn > 0 && of->turn + phase >= of->lasts ? of->next : of->now;
    return (uint32_t)(mix_word(word ^ id) >> 32);
}

void draw_least_ref(int64_t *done, int32_t *drawn, int64_t room, int64_t *positions, int64_t n,
                    const int64_t *begin, const int64_t *degree, int64_t fanout,
                    const int32_t *indices, int64_t edges, halognn_numbers of) {
    int64_t i = 0;
    for (; i < n; i++) {
        uint64_t least[HALOGNN_CANDIDATES]; /* number << 32 | place, ascending */
        if (begin[i] < 0 || degree[i] < 0 || begin[i] > edges - degree[i] ||
            (degree[i] < fanout ? degree[i] : fanout) > room)
            break;
        const int32_t *row = indices + begin[i];
        int64_t m = 0, k = 0;
        for (; k < degree[i] && degree[i] > fanout && (uint32_t)row[k] < of.vertices; k++) {
            const uint32_t r = of.table ? of.table[row[k]] : number_of(&of, of.original[row[k]]);
            const uint64_t word = (uint64_t)r << 32 | (uint64_t)k;
            if (m == fanout && word > least[m - 1])
                continue;
            int64_t at = m < fanout ? m++ : m - 1;
            for (; at > 0 && least[at - 1] > word; at--)
                least[at] = least[at - 1];
            least[at] = word;
        }
        if (degree[i] > fanout) {
            if (k < degree[i])
                break;
            for (int64_t a = 1; a < m; a++) { /* sorts them into the order of the row */
                const uint64_t word = least[a] << 32 | least[a] >> 32;
                int64_t at = a;
                for (; at > 0 && (uint32_t)least[at - 1] > word >> 32; at--)
                    least[at] = least[at - 1];
                least[at] = word << 32 | word >> 32;
            }
        } else {
            for (m = 0; m < degree[i]; m++)
                least[m] = (uint64_t)m;
        }
        room -= m;
        for (k = 0; k < m; k++) {
            *drawn++ = row[(uint32_t)least[k]];
            if (positions)
                *positions++ = begin[i] + (uint32_t)least[k];
        }
    }
    *done = i;
}
