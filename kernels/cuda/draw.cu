// Draws minibatches of the kinds neighbour and labor on the device. The result has the same bits as
// that of the host's sampler (src/topology/sample/hop.go, labor.go). For kind neighbour, every
// vertex has a random sequence of its own. For kind labor, it takes the neighbours with the
// smallest random numbers. A vertex with at most fanout in-edges takes all of them. New vertices
// are numbered in the order of the first edges that reach them.
//
// The host does not know how many vertices and edges a hop has. So grids are as large as the bounds
// allow, and threads read the real numbers from the header. No block waits for another. The kernels
// are:
//
//	locate    finds the rows of destinations; counts edges by piece, and before each piece
//	rows      writes the row pointers
//	draw      (or draw_least) draws neighbours; each edge claims its neighbour in the map by the
//	          number n + edge, where n is the number of vertices so far; the smallest claim wins;
//	          the entry of a vertex that is already known is its local number, which is smaller
//	resolve   reads the map for each edge; counts edges that won, by piece and before each piece
//	number    gives a new vertex the local number n + (number of winning edges before its edge)
//	finish    computes the weights of edges, and orders edges by part
//	count, offset, fill, order, order_long   make the transpose
//	lack, list   list the vertices whose rows are not resident
//
// A piece is PIECE consecutive items, which one warp counts. The map has an entry for each vertex
// of the graph and is never cleared. An entry begins with a tag, which is smaller in each minibatch
// than in the one before. So entries of earlier minibatches are greater than any claim, and lose
// against it.
#include "reduce.cuh"
#include "then.cuh"
#include "warp.cuh"

#include <cmath>
#include <type_traits>

namespace halognn {
namespace {

constexpr int WORDS = 8; // 32-bit words of marks in a piece
constexpr int64_t PIECE = WORDS * WARP;
constexpr int SUMS = 4; // number of sums of pieces that a lane reads at once
// room for the candidates of a destination, for draws by the smallest numbers
constexpr int KEPT = 128;
static_assert(KEPT >= HALOGNN_FANOUT, "a row keeps at least the fanout, and at most KEPT");
constexpr int64_t LONG = 1024;     // a segment of more edges than this is ordered by a warp
constexpr int64_t ORDERERS = 1024; // number of warps that order such segments
constexpr uint64_t GOLDEN = 0x9e3779b97f4a7c15ull;
constexpr uint32_t ALL = 0xffffffffu;

using word64 = unsigned long long; // the 64-bit type of atomic operations, which have no uint64_t

// scratch is memory in which the kernels of a hop leave results to each other.
struct scratch {
    uint32_t *arrived, *longs;  // counters
    int64_t *begin, *degree;    // [destinations]
    int64_t *first;             // [destinations] number of the destination's first edge
    // [pieces] sum of each piece; later, the sum of the pieces before it
    int64_t *sums;
    int32_t *drawn, *ends;      // [edges] neighbour that was drawn, and destination
    int32_t *ends_of;           // [edges, including self edges] destination
    uint32_t *values;           // [edges] entry of the map for the neighbour
    // [edges or vertices / 32] a mark for each edge or vertex, 32 in a word; number of marks before
    // this word in its piece
    uint32_t *won, *before;
    int32_t *loose;             // [edges, including self edges] edges of each source, in any order
    // [sources] number of the source's edges, later of its edges that are in place
    int32_t *cursor;
    int32_t *long_ones;         // sources with more than LONG edges
};

__host__ __device__ inline int64_t pieces(int64_t n) { return (n + PIECE - 1) / PIECE; }

// lay_out sets the pointers of scratch, for the bounds of a drawing. It returns the number of bytes
// of scratch.
int64_t lay_out(const halognn_cuda_drawing &w, scratch *s) {
    int64_t destinations = 1, edges = 1, vertices = w.num_seeds;
    for (int h = 0; h < w.hops; h++) {
        const halognn_cuda_hop &hop = w.hop[h];
        destinations = hop.destinations > destinations ? hop.destinations : destinations;
        edges = hop.edges > edges ? hop.edges : edges;
        vertices = hop.sources > vertices ? hop.sources : vertices;
    }
    const int64_t all = edges + (w.self ? destinations : 0), most = all > vertices ? all : vertices;
    int64_t at = HALOGNN_DRAW_COUNTERS;
    // 0 if only the number of bytes is wanted
    const auto base = reinterpret_cast<uintptr_t>(w.scratch);
    auto take = [&](auto *&p, int64_t n) {
        p = reinterpret_cast<std::remove_reference_t<decltype(p)>>(base + at);
        at += ceil_div(n * static_cast<int64_t>(sizeof *p), 256) * 256;
    };
    s->arrived = reinterpret_cast<uint32_t *>(base);
    s->longs = reinterpret_cast<uint32_t *>(base + sizeof *s->arrived);
    take(s->begin, destinations);
    take(s->degree, destinations);
    take(s->first, destinations);
    take(s->sums, pieces(most));
    take(s->drawn, edges);
    take(s->ends, edges);
    s->ends_of = s->ends;
    if (w.self) take(s->ends_of, all);
    take(s->values, edges);
    take(s->won, ceil_div(most, WARP));
    take(s->before, ceil_div(most, WARP));
    take(s->loose, all);
    take(s->cursor, vertices);
    take(s->long_ones, all / LONG + 1);
    return at;
}

// The struct one has what the kernels of one hop need.
struct one {
    halognn_cuda_topology of;
    halognn_cuda_drawn *drawn;
    halognn_cuda_hop hop;
    scratch s;
    uint32_t tag;
    int h, self;

    __device__ int64_t destinations() const { return drawn->vertices[h]; }
    __device__ int64_t sources() const { return drawn->vertices[h + 1]; }
    __device__ int64_t edges() const { return drawn->edges[h]; }
    __device__ int64_t all_edges() const { return edges() + (self ? destinations() : 0); }
    // taken returns the number of edges that a destination draws. It returns 0 for all destinations
    // if together they would exceed the bound.
    __device__ int64_t taken(int64_t degree) const {
        return edges() == 0 ? 0 : wants(degree);
    }
    __device__ int64_t wants(int64_t degree) const {
        return degree < hop.fanout ? degree : hop.fanout;
    }
};

// before_in_warp returns the sum of v over the lanes before this one. It sets *all to the sum over
// all lanes of the warp.
__device__ inline int64_t before_in_warp(int64_t v, int64_t *all) {
    int64_t sum = v;
    const int lane = static_cast<int>(my_lane());
    for (int step = 1; step < WARP; step *= 2) {
        const int64_t other = __shfl_sync(ALL, sum, (lane - step) & (WARP - 1));
        if (lane >= step) sum += other;
    }
    *all = __shfl_sync(ALL, sum, WARP - 1);
    return sum - v;
}

// add_pieces is called by all warps of a grid, each with the sum of its piece. The last warp to
// call it replaces each of the n sums by the sum of all pieces before it. It gets the total of all
// pieces and the result true; other warps get false.
__device__ inline bool add_pieces(const scratch &s, int64_t n, int64_t sum, int64_t *total) {
    int last = 0;
    if (my_lane() == 0) {
        if (my_row() < n) s.sums[my_row()] = sum;
        last = arrive(s.arrived, static_cast<int64_t>(gridDim.x) * (BLOCK / WARP));
    }
    __syncwarp(); // the other lanes read what lane 0 has seen
    if (warp_sum(last) == 0) return false;
    *total = 0;
    for (int64_t base = 0; base < n; base += SUMS * WARP) {
        const int64_t i = base + my_lane() * SUMS;
        int64_t v[SUMS], mine = 0, all;
        for (int k = 0; k < SUMS; k++)
            v[k] = i + k < n ? __ldcg(reinterpret_cast<const long long *>(s.sums + i + k)) : 0;
        for (int k = 0; k < SUMS; k++) mine += v[k];
        int64_t before = *total + before_in_warp(mine, &all);
        for (int k = 0; k < SUMS && i + k < n; k++) {
            s.sums[i + k] = before;
            before += v[k];
        }
        *total += all;
    }
    return true;
}

// mark sets the marks of 32 items, one for each lane of the calling warp. Each lane says whether
// its item is marked (`yes`). *running counts the marks of the warp's piece.
__device__ inline void mark(const scratch &s, int64_t i, int64_t n, bool yes, int64_t *running) {
    const uint32_t bits = __ballot_sync(ALL, yes);
    if (my_lane() == 0 && i < n) {
        s.won[i / WARP] = bits;
        s.before[i / WARP] = static_cast<uint32_t>(*running);
    }
    *running += __popc(bits);
}

// rank returns the number of marked items before item i.
__device__ inline int64_t rank(const scratch &s, int64_t i) {
    return s.sums[i / PIECE] + s.before[i / WARP] +
           __popc(s.won[i / WARP] & ((1u << i % WARP) - 1));
}

// frontier has the vertices of all hops so far, in the order of their local numbers.
struct frontier {
    int32_t *vertices, *original;
    uint64_t *refs;
};

// settle puts v into the frontier under a local number.
__device__ inline void settle(const halognn_cuda_topology &of, const frontier &f,
                              int64_t local, int32_t v) {
    f.vertices[local] = v;
    f.original[local] = of.original[v];
    f.refs[local] = of.where ? of.where[v] : HALOGNN_ELSEWHERE;
}

__global__ void begin(halognn_cuda_topology of, halognn_cuda_drawn *drawn, frontier f,
                      const int32_t *seeds, int64_t n, uint32_t tag) {
    const int64_t i = item();
    if (i >= n) return;
    if (i == 0) drawn->vertices[0] = n;
    int32_t v = seeds[i];
    if (v < 0 || v >= of.vertices) drawn->fault = 1, v = 0;
    settle(of, f, i, v);
    atomicMin(of.map + v, tag | static_cast<uint32_t>(i));
}

__global__ void locate(one o, frontier f) {
    const scratch &s = o.s;
    const int64_t n = o.destinations(), first = my_row() * PIECE;
    int64_t sum = 0;
    for (int k = 0; k < WORDS; k++) {
        const int64_t d = first + k * WARP + my_lane();
        if (d >= n) continue;
        const int32_t v = f.vertices[d];
        const int64_t begin = o.of.indptr[v];
        int64_t degree = o.of.indptr[v + 1] - begin;
        if (begin < 0 || degree < 0 || degree > o.of.edges - begin)
            o.drawn->fault = 1, degree = 0;
        // the same seed is given twice
        if (o.h == 0 && o.of.map[v] != (o.tag | static_cast<uint32_t>(d))) o.drawn->fault = 1;
        s.begin[d] = begin;
        s.degree[d] = degree;
        sum += o.wants(degree);
    }
    int64_t total;
    if (!add_pieces(s, pieces(n), warp_sum(sum), &total) || my_lane() != 0) return;
    // the rows of destinations overlap, so the graph is damaged
    if (total > o.hop.edges) o.drawn->fault = 1, total = 0;
    o.drawn->edges[o.h] = total;
}

__global__ void rows(one o) {
    const scratch &s = o.s;
    const int64_t n = o.destinations(), first = my_row() * PIECE;
    if (first >= n) return;
    int64_t at = o.edges() == 0 ? 0 : s.sums[my_row()];
    for (int k = 0; k < WORDS; k++) {
        const int64_t d = first + k * WARP + my_lane();
        const int64_t taken = d < n ? o.taken(s.degree[d]) : 0;
        int64_t all;
        const int64_t edge = at + before_in_warp(taken, &all);
        at += all;
        if (d >= n) continue;
        s.first[d] = edge;
        const int64_t row = o.self ? edge + d : edge;
        o.hop.indptr[d] = row;
        if (o.self) {
            o.hop.indices[row] = static_cast<int32_t>(d);
            s.ends_of[row] = static_cast<int32_t>(d);
        }
        if (d + 1 == n) o.hop.indptr[n] = row + taken + (o.self ? 1 : 0);
    }
}

// below returns a random number in [0,n), for n >= 1, as sample.stream.below does on the host.
__device__ inline uint64_t below(uint64_t *state, uint64_t n) {
    uint64_t word = mix64(*state += GOLDEN);
    if (word * n < n)
        for (const uint64_t reject = (0 - n) % n; word * n < reject;)
            word = mix64(*state += GOLDEN);
    return __umul64hi(word, n);
}

// sequence_of returns the start of destination d's random sequence. The same number is the key of
// d's edges in the digest.
__device__ inline uint64_t sequence_of(const one &o, const frontier &f, int64_t d) {
    return mix64(o.hop.word ^ static_cast<uint32_t>(f.original[d]));
}

// neighbour returns the vertex at index `at` of the array of in-neighbours.
__device__ inline int32_t neighbour(const one &o, int64_t at) {
    const int32_t v = o.of.indices[at];
    if (v >= 0 && v < o.of.vertices) return v;
    o.drawn->fault = 1;
    return 0;
}

// take makes v the source of an edge of destination d, and returns the number that the edge adds to
// the digest. The argument n is the number of vertices so far.
__device__ inline uint64_t take(const one &o, int64_t n, int64_t d, uint64_t sequence,
                                int64_t edge, int32_t v) {
    o.s.drawn[edge] = v;
    o.s.ends[edge] = static_cast<int32_t>(d);
    atomicMin(o.of.map + v, o.tag | static_cast<uint32_t>(n + edge));
    return mix64(sequence ^ static_cast<uint32_t>(o.of.original[v]));
}

// add_to_digest adds the sum of all lanes to the digest. All lanes of a warp must call it.
__device__ inline void add_to_digest(const one &o, uint64_t sum) {
    sum = warp_sum(sum);
    if (my_lane() == 0 && sum != 0)
        atomicAdd(reinterpret_cast<word64 *>(&o.drawn->digest), static_cast<word64>(sum));
}

__global__ void draw(one o, frontier f) {
    const scratch &s = o.s;
    const int64_t n = o.destinations(), d = item();
    uint64_t sum = 0;
    if (d < n) {
        const uint64_t sequence = sequence_of(o, f, d);
        const int64_t begin = s.begin[d], degree = s.degree[d], taken = o.taken(degree);
        uint64_t state = sequence, seen = 0, picks[HALOGNN_FANOUT];
        for (int64_t i = 0; i < taken; i++) {
            uint64_t pick = static_cast<uint64_t>(i);
            // Floyd's method: if a number was already drawn, the largest possible number takes its
            // place
            if (taken < degree) {
                const uint64_t last = static_cast<uint64_t>(degree - taken + i);
                pick = below(&state, last + 1);
                bool again = seen >> pick % 64 & 1;
                if (again && degree > 64) {
                    again = false;
                    for (int64_t k = 0; k < i && !again; k++) again = picks[k] == pick;
                }
                if (again) pick = last;
                seen |= uint64_t{1} << pick % 64;
                picks[i] = pick;
            }
            sum += take(o, n, d, sequence, s.first[d] + i,
                        neighbour(o, begin + static_cast<int64_t>(pick)));
        }
    }
    add_to_digest(o, sum);
}

// number_of returns the random number of the vertex with this original id, as sample.numbers.of
// does on the host.
__device__ inline uint32_t number_of(const halognn_cuda_numbers &of, uint32_t original) {
    uint64_t word = of.now;
    if (of.turn > 0) {
        const uint64_t phase = (mix64(of.phases ^ original) >> 32) * of.lasts >> 32;
        if (of.turn + phase >= of.lasts) word = of.next;
    }
    return static_cast<uint32_t>(mix64(word ^ original) >> 32);
}

// keep_below writes the neighbours whose key is below a bound to kept, in the order of the row. The
// key is the neighbour's random number << 32 | its place in the row, so no two keys are equal.
// keep_below returns the number of neighbours that it has written. If there are more than KEPT, it
// may return any number above KEPT. All lanes of a warp must call it.
__device__ inline int keep_below(const one &o, int64_t begin, int64_t degree, uint64_t bound,
                                 uint64_t *kept) {
    int found = 0;
    for (int64_t base = 0; base < degree && found <= KEPT; base += PIECE) {
        int32_t v[WORDS];
        uint32_t original[WORDS];
        bool ok = true;
        // All loads of a loop are issued before the first result is used, because no store or
        // branch is between them. The loops are unrolled, because otherwise the arrays would be in
        // local memory.
#pragma unroll
        for (int k = 0; k < WORDS; k++) {
            const int64_t at = base + k * WARP + my_lane();
            v[k] = at < degree ? o.of.indices[begin + at] : 0;
        }
#pragma unroll
        for (int k = 0; k < WORDS; k++) {
            const bool is = v[k] >= 0 && v[k] < o.of.vertices;
            ok = ok && is;
            original[k] = static_cast<uint32_t>(o.of.original[is ? v[k] : 0]);
        }
        if (!ok) o.drawn->fault = 1;
#pragma unroll
        for (int k = 0; k < WORDS; k++) {
            if (base + k * WARP >= degree) break;
            const int64_t at = base + k * WARP + my_lane();
            const uint64_t candidate =
                static_cast<uint64_t>(number_of(o.hop.numbers, original[k])) << 32 | at;
            const bool keeps = at < degree && candidate < bound;
            const uint32_t bits = __ballot_sync(ALL, keeps);
            const int to = found + __popc(bits & ((1u << my_lane()) - 1));
            if (keeps && to < KEPT) kept[to] = candidate;
            found += __popc(bits);
        }
    }
    __syncwarp();
    return found;
}

// candidates writes some of a row's neighbours to kept, among them those with the fanout smallest
// keys. It returns the number of neighbours written, which is at most KEPT. The first bound almost
// always leaves a suitable number. If not, bisection finds a bound that does, because no two keys
// are equal. Bisection begins with small steps.
__device__ inline int candidates(const one &o, int64_t begin, int64_t degree, uint64_t *kept) {
    const float fanout = static_cast<float>(o.hop.fanout);
    const float share = (fanout + 3 * sqrtf(fanout) + 3) / static_cast<float>(degree);
    // the largest bound known to leave too few candidates, and the smallest known to leave too many
    uint64_t few = 0, many = UINT64_MAX;
    uint64_t bound = share < 1 ? static_cast<uint64_t>(share * 0x1p32f) << 32 : UINT64_MAX;
    for (;;) {
        const int found = keep_below(o, begin, degree, bound, kept);
        if (found >= o.hop.fanout && found <= KEPT) return found;
        (found < o.hop.fanout ? few : many) = bound;
        const uint64_t half = (many - few) / 2, step = few / 2;
        bound = few + (step > 0 && step < half ? step : half);
    }
}

__global__ void draw_least(one o, frontier f) {
    SHARED(uint64_t, kept, [BLOCK / WARP][KEPT]);
    const scratch &s = o.s;
    const int64_t n = o.destinations(), d = my_row(), lane = my_lane();
    uint64_t sum = 0;
    if (d < n) {
        const uint64_t sequence = sequence_of(o, f, d);
        const int64_t begin = s.begin[d], degree = s.degree[d], taken = o.taken(degree);
        if (taken == degree) {
            for (int64_t i = lane; i < degree; i += WARP)
                sum += take(o, n, d, sequence, s.first[d] + i, neighbour(o, begin + i));
        } else if (taken > 0) {
            const uint64_t *all = kept[threadIdx.x / WARP];
            const int found = candidates(o, begin, degree, kept[threadIdx.x / WARP]);
            int64_t edge = s.first[d];
            for (int base = 0; base < found; base += WARP) {
                const int i = base + static_cast<int>(lane);
                const uint64_t mine = i < found ? all[i] : 0;
                int smaller = 0;
                for (int k = 0; k < found; k++) smaller += all[k] < mine;
                const bool takes = i < found && smaller < taken;
                const uint32_t bits = __ballot_sync(ALL, takes);
                if (takes)
                    sum += take(o, n, d, sequence, edge + __popc(bits & ((1u << lane) - 1)),
                                neighbour(o, begin + static_cast<uint32_t>(mine)));
                edge += __popc(bits);
            }
        }
    }
    add_to_digest(o, sum);
}

__global__ void resolve(one o) {
    const scratch &s = o.s;
    const int64_t n = o.destinations(), edges = o.edges(), first = my_row() * PIECE;
    int64_t won = 0;
    for (int k = 0; k < WORDS; k++) {
        const int64_t e = first + k * WARP + my_lane();
        bool mine = false;
        if (e < edges) {
            const uint32_t value = o.of.map[s.drawn[e]] - o.tag;
            s.values[e] = value;
            mine = value == static_cast<uint32_t>(n + e);
        }
        mark(s, e, edges, mine, &won);
    }
    int64_t total;
    if (!add_pieces(s, pieces(edges), won, &total) || my_lane() != 0) return;
    // too many sources, because a seed is given twice
    if (n + total > o.hop.sources) o.drawn->fault = 1, total = 0;
    o.drawn->vertices[o.h + 1] = n + total;
}

__global__ void number(one o, frontier f) {
    const scratch &s = o.s;
    const int64_t n = o.destinations(), e = item();
    if (e >= o.edges()) return;
    const int64_t value = s.values[e];
    int64_t local = value < n ? value : n + rank(s, value - n);
    // known is false only if the block would get more sources than there is room for
    const bool known = local < o.sources();
    if (!known) local = 0;
    const int32_t v = s.drawn[e], d = s.ends[e];
    const int64_t at = o.self ? e + d + 1 : e;
    o.hop.indices[at] = static_cast<int32_t>(local);
    if (o.self) s.ends_of[at] = d;
    if (known && value == n + e) {
        settle(o.of, f, local, v);
        o.of.map[v] = o.tag | static_cast<uint32_t>(local);
    }
    if (o.hop.out_indptr) atomicAdd(s.cursor + local, 1);
}

// part returns the part of the graph to which a vertex belongs.
__device__ inline int part(const halognn_cuda_topology &of, int32_t v) {
    int lo = 0, hi = of.num_parts;
    while (hi - lo > 1) {
        const int mid = (lo + hi) / 2;
        if (v < of.parts[mid]) hi = mid;
        else lo = mid;
    }
    return lo;
}

__device__ inline double degree_of(const halognn_cuda_topology &of, int32_t v) {
    return static_cast<double>(of.indptr[v + 1] - of.indptr[v]);
}

// weigh sets the weights of the edges of a destination, in the same way as parallel.LayerEdges.
__device__ inline void weigh(const one &o, const frontier &f, int weighting, int64_t d) {
    const int64_t lo = o.hop.indptr[d], hi = o.hop.indptr[d + 1], own = o.self ? 1 : 0;
    const double drawn = static_cast<double>(hi - lo - own);
    if (weighting != HALOGNN_WEIGHTS_SYMMETRIC) {
        const double sum = drawn + static_cast<double>(own);
        const double each = sum > 0 ? 1 / sum : 0;
        for (int64_t e = lo; e < hi; e++)
            o.hop.weights[e] =
                weighting == HALOGNN_WEIGHTS_MEAN ? static_cast<float>(each) : 1.0f;
        return;
    }
    const double degree = degree_of(o.of, f.vertices[d]);
    const double share = degree / (drawn > 1 ? drawn : 1) / sqrt(degree + 1);
    o.hop.weights[lo] = static_cast<float>(1 / (degree + 1));
    for (int64_t e = lo + 1; e < hi; e++) {
        const double other = degree_of(o.of, f.vertices[o.hop.indices[e]]);
        o.hop.weights[e] = static_cast<float>(share / sqrt(other + 1));
    }
}

// group orders the edges of destination d by the part to which their source belongs. Where another
// part begins after the first edge, it inverts the bits of the source, which marks a new group.
// graph.Grouper does the same on the host.
__device__ inline void group(const one &o, const frontier &f, int64_t d) {
    const int64_t lo = o.hop.indptr[d];
    const int n = static_cast<int>(o.hop.indptr[d + 1] - lo);
    int32_t *indices = o.hop.indices + lo;
    float *weights = o.hop.weights ? o.hop.weights + lo : nullptr;
    uint16_t of[HALOGNN_FANOUT + 1];
    for (int k = 0; k < n; k++) {
        const int32_t source = indices[k];
        const float weight = weights ? weights[k] : 0;
        const auto mine = static_cast<uint16_t>(part(o.of, f.vertices[source]));
        int at = k;
        for (; at > 0 && of[at - 1] > mine; at--) {
            of[at] = of[at - 1];
            indices[at] = indices[at - 1];
            if (weights) weights[at] = weights[at - 1];
        }
        of[at] = mine;
        indices[at] = source;
        if (weights) weights[at] = weight;
    }
    for (int k = 1; k < n; k++)
        if (of[k] != of[k - 1]) indices[k] = ~indices[k];
}

__global__ void finish(one o, frontier f, int weighting, int grouped) {
    const int64_t d = item();
    if (d >= o.destinations()) return;
    if (o.hop.weights) weigh(o, f, weighting, d);
    if (grouped) group(o, f, d);
}

// leaving returns the number of edges that lead from a source.
__device__ inline int64_t leaving(const one &o, int64_t source) {
    return o.s.cursor[source] + (o.self && source < o.destinations() ? 1 : 0);
}

__global__ void count(one o) {
    const int64_t n = o.sources(), first = my_row() * PIECE;
    int64_t sum = 0;
    for (int k = 0; k < WORDS; k++) {
        const int64_t source = first + k * WARP + my_lane();
        if (source < n) sum += leaving(o, source);
    }
    int64_t total;
    if (add_pieces(o.s, pieces(n), warp_sum(sum), &total) && my_lane() == 0)
        *o.s.longs = 0;
}

__global__ void offset(one o) {
    const int64_t n = o.sources(), first = my_row() * PIECE;
    if (first >= n) return;
    int64_t at = o.s.sums[my_row()];
    for (int k = 0; k < WORDS; k++) {
        const int64_t source = first + k * WARP + my_lane();
        const int64_t leave = source < n ? leaving(o, source) : 0;
        int64_t all;
        const int64_t edge = at + before_in_warp(leave, &all);
        at += all;
        if (source >= n) continue;
        o.hop.out_indptr[source] = edge;
        o.s.cursor[source] = 0;
        if (source + 1 == n) o.hop.out_indptr[n] = edge + leave;
    }
}

__global__ void fill(one o) {
    const int64_t e = item();
    if (e >= o.all_edges()) return;
    const int32_t source = o.hop.indices[e];
    o.s.loose[o.hop.out_indptr[source] + atomicAdd(o.s.cursor + source, 1)] =
        static_cast<int32_t>(e);
}

// put writes edge number `edge` to position k of the transpose.
__device__ inline void put(const one &o, int64_t k, int32_t edge) {
    o.hop.out_edges[k] = edge;
    o.hop.out_indices[k] = o.s.ends_of[edge];
    if (o.hop.out_weights) o.hop.out_weights[k] = o.hop.weights[edge];
}

// order sorts the edges of each source: it puts each edge after the smaller ones of the same
// source. If a source has many edges, it leaves them to a warp of order_long.
__global__ void order(one o) {
    const int64_t k = item();
    if (k >= o.all_edges()) return;
    const int32_t edge = o.s.loose[k], source = o.hop.indices[edge];
    const int64_t lo = o.hop.out_indptr[source], hi = o.hop.out_indptr[source + 1];
    if (hi - lo > LONG) {
        if (k == lo) o.s.long_ones[atomicAdd(o.s.longs, 1u)] = source;
        return;
    }
    int64_t at = lo;
    for (int64_t i = lo; i < hi; i++) at += o.s.loose[i] < edge;
    put(o, at, edge);
}

__global__ void order_long(one o) {
    const int64_t edges = o.all_edges(), many = *o.s.longs;
    for (int64_t i = my_row(); i < many; i += static_cast<int64_t>(gridDim.x) * (BLOCK / WARP)) {
        const int32_t source = o.s.long_ones[i];
        int64_t at = o.hop.out_indptr[source];
        for (int64_t base = 0; base < edges; base += PIECE) {
            int32_t of[WORDS]; // all are loaded before the first is used
            for (int k = 0; k < WORDS; k++) {
                const int64_t e = base + k * WARP + my_lane();
                of[k] = e < edges ? o.hop.indices[e] : -1;
            }
            for (int k = 0; k < WORDS; k++) {
                const uint32_t bits = __ballot_sync(ALL, of[k] == source);
                if (of[k] == source)
                    put(o, at + __popc(bits & ((1u << my_lane()) - 1)),
                        static_cast<int32_t>(base + k * WARP + my_lane()));
                at += __popc(bits);
            }
        }
    }
}

__global__ void lack(halognn_cuda_drawn *drawn, scratch s, int hops, const uint64_t *refs) {
    const int64_t n = drawn->vertices[hops], first = my_row() * PIECE;
    int64_t running = 0;
    for (int k = 0; k < WORDS; k++) {
        const int64_t i = first + k * WARP + my_lane();
        mark(s, i, n, i < n && refs[i] == HALOGNN_ELSEWHERE, &running);
    }
    int64_t total;
    if (add_pieces(s, pieces(n), running, &total) && my_lane() == 0)
        drawn->missing = total;
}

__global__ void list(halognn_cuda_drawn *drawn, scratch s, int hops, frontier f, int32_t *missing,
                     int32_t *missing_at) {
    const int64_t i = item();
    if (i >= drawn->vertices[hops] || f.refs[i] != HALOGNN_ELSEWHERE) return;
    const int64_t at = rank(s, i);
    missing[at] = f.vertices[i];
    missing_at[at] = static_cast<int32_t>(i);
}

__global__ void place(uint64_t *refs, const int32_t *at, int64_t n, const uint64_t *from) {
    const int64_t i = item();
    if (i < n) refs[at[i]] = from[i];
}

// transpose launches the kernels that make the transpose of a hop.
int transpose(halognn_cuda *c, const one &o, int64_t edges) {
    const dim3 by_piece = rows_by_warp(pieces(o.hop.sources));
    if (int e = LAUNCH_TOGETHER_ON(c, HALOGNN_DRAW, count, by_piece, o)) return e;
    if (int e = LAUNCH_TOGETHER_ON(c, HALOGNN_DRAW, offset, by_piece, o)) return e;
    if (int e = LAUNCH_ON(c, HALOGNN_DRAW, fill, blocks(edges), o)) return e;
    if (int e = LAUNCH_ON(c, HALOGNN_DRAW, order, blocks(edges), o)) return e;
    const int64_t warps = edges / LONG; // an upper bound of the number of long segments
    if (warps == 0) return 0;
    return LAUNCH_TOGETHER_ON(c, HALOGNN_DRAW, order_long,
                              rows_by_warp(warps < ORDERERS ? warps : ORDERERS), o);
}

int draw_hop(halognn_cuda *c, const halognn_cuda_drawing &w, const one &o, const frontier &f) {
    const int64_t destinations = o.hop.destinations, edges = o.hop.edges > 0 ? o.hop.edges : 1;
    const dim3 by_piece = rows_by_warp(pieces(destinations));
    if (o.hop.out_indptr)
        if (int e = halognn_cuda_zero(c, HALOGNN_DRAW, o.s.cursor, o.hop.sources * 4)) return e;
    if (int e = LAUNCH_TOGETHER_ON(c, HALOGNN_DRAW, locate, by_piece, o, f)) return e;
    if (int e = LAUNCH_TOGETHER_ON(c, HALOGNN_DRAW, rows, by_piece, o)) return e;
    if (int e = o.hop.numbers.lasts > 0 ? LAUNCH_TOGETHER_ON(c, HALOGNN_DRAW, draw_least,
                                                             rows_by_warp(destinations), o, f)
                                        : LAUNCH_TOGETHER_ON(c, HALOGNN_DRAW, draw,
                                                             blocks(destinations), o, f))
        return e;
    if (int e = LAUNCH_TOGETHER_ON(c, HALOGNN_DRAW, resolve, rows_by_warp(pieces(edges)), o))
        return e;
    if (int e = LAUNCH_ON(c, HALOGNN_DRAW, number, blocks(edges), o, f)) return e;
    const int grouped = w.grouped && o.h + 1 == w.hops && w.topology.num_parts > 1;
    if (o.hop.weights || grouped)
        if (int e = LAUNCH_ON(c, HALOGNN_DRAW, finish, blocks(destinations), o, f, w.weighting,
                              grouped))
            return e;
    return o.hop.out_indptr ? transpose(c, o, edges + (w.self ? destinations : 0)) : 0;
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" int64_t halognn_cuda_draw_scratch(const halognn_cuda_drawing *what) {
    scratch s;
    return lay_out(*what, &s);
}

extern "C" int halognn_cuda_draw(halognn_cuda *c, const halognn_cuda_drawing *what) {
    const halognn_cuda_drawing &w = *what;
    const frontier f{w.frontier, w.original, w.refs};
    one o{w.topology, w.drawn, {}, {}, w.tag, 0, w.self};
    lay_out(w, &o.s);
    if (w.fresh)
        if (int e = cudaMemsetAsync(w.topology.map, 0xff, w.topology.vertices * 4,
                                    on(c, HALOGNN_DRAW)))
            return e;
    if (int e = halognn_cuda_zero(c, HALOGNN_DRAW, w.drawn, sizeof *w.drawn)) return e;
    if (int e = LAUNCH_ON(c, HALOGNN_DRAW, begin, blocks(w.num_seeds), w.topology, w.drawn, f,
                          w.seeds, w.num_seeds, w.tag))
        return e;
    for (o.h = 0; o.h < w.hops; o.h++) {
        o.hop = w.hop[o.h];
        if (int e = draw_hop(c, w, o, f)) return e;
    }
    if (w.missing == nullptr) return 0;
    const int64_t vertices = w.hop[w.hops - 1].sources;
    if (int e = LAUNCH_TOGETHER_ON(c, HALOGNN_DRAW, lack, rows_by_warp(pieces(vertices)), w.drawn,
                                   o.s, w.hops, w.refs))
        return e;
    return LAUNCH_ON(c, HALOGNN_DRAW, list, blocks(vertices), w.drawn, o.s, w.hops, f, w.missing,
                     w.missing_at);
}

extern "C" int halognn_cuda_place_refs(halognn_cuda *c, int stream, uint64_t *refs,
                                       const int32_t *at, int64_t n, const uint64_t *from) {
    if (n == 0) return 0;
    return LAUNCH_ON(c, stream, place, blocks(n), refs, at, n, from);
}
