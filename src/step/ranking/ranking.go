// Package ranking keeps on disk which remote vertices a static cache would hold for each rank of a
// job, best first. Computing a ranking needs the whole graph; a run that reads a ranking does not.
//
//	parts, job ──> Write ──> PARTS/analysis/vip-0123456789abcdef/
//	                           meta.json            what it was computed for, expected rows
//	                           rank-0000.npy        int32   [n] vertices, best first
//	                           rank-0000-reads.npy  float32 [n] how likely a minibatch reads each
//	                           rank-0001.npy  ...
//	run ──> Open ──> Hold(rank, capacity): the vertices to hold, as from policy.Policy.Hold, and the
//	                 number of rows that are still fetched
//
// The name of a directory has a hash of everything that the ranking depends on, so a run finds its
// own ranking or none. Packages policy and access compute rankings; this package only stores them.
package ranking

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cespare/xxhash/v2"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/data/rundir"
	"halognn/src/data/shard"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Dir is the directory of rankings in a PARTS directory.
const Dir = dataset.RankingsDir

const (
	format   = 1
	metaFile = "meta.json"
)

// ErrMissing is wrapped by the error about a ranking that has not been written, or is too short.
var ErrMissing = errors.New("the vertices have not been ranked for this run")

// Meta is meta.json.
type Meta struct {
	Format int     `json:"format"`
	For    Purpose `json:"for"`
	Ranks  []Rank  `json:"ranks"`
}

// Purpose is everything that a ranking depends on. Two jobs with the same Purpose can use the same
// ranking.
type Purpose struct {
	Parts    string           `json:"parts"`           // shard.Shards.Identity
	Split    int              `json:"split,omitempty"` // number of the split that has the seeds
	Policy   string           `json:"policy"`
	HaloHops int              `json:"halo_hops"`
	Local    [][]access.Range `json:"local"` // [K] vertices whose rows each rank has
	Fanouts  []int            `json:"fanouts"`
	Batch    int              `json:"batch"`
	Global   [2]bool          `json:"global"`            // whether batch and seeds are global
	PerPart  bool             `json:"per_part"`          // whether each part has a stream
	Seed     uint64           `json:"seed"`              // 0 unless the policy counts accesses
	Epochs   int              `json:"epochs"`            // 0 unless the policy counts accesses
	Kind     string           `json:"sample_kind"`       // kind of sampling
	Numbers  *sample.Numbers  `json:"numbers,omitempty"` // nil unless LABOR draws by them
}

// Rank is the entry of one rank in meta.json.
type Rank struct {
	Vertices int     `json:"vertices"` // number of ranked vertices
	All      bool    `json:"all"`      // whether the policy would keep no others
	Expected float64 `json:"expected"` // remote rows of a minibatch without a cache
}

// newPurpose returns what the ranking of a policy for a job depends on.
func newPurpose(j *job.Job, p *policy.Policy) Purpose {
	purpose := Purpose{
		Parts: j.Shards.Identity(), Split: shard.SplitOf(j.Shards), Policy: p.Name,
		HaloHops: j.Cache.HaloHops, Fanouts: j.Sample.Fanouts, Kind: string(j.Sample.Kind),
		Batch: j.Batch, Global: [2]bool{j.GlobalBatch, j.GlobalSeeds}, PerPart: j.StreamPerPart,
	}
	for r := range j.Ranks {
		purpose.Local = append(purpose.Local, j.Local(r))
	}
	if j.Sample.Numbered() {
		purpose.Numbers = &j.Sample.Numbers
	}
	if p.Counts {
		purpose.Seed, purpose.Epochs = j.Seed, j.Epochs
	}
	return purpose
}

// path returns the directory of a ranking.
func (p *Purpose) path(parts string) string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // cannot fail on numbers and words
	}
	return filepath.Join(parts, Dir, fmt.Sprintf("%s-%016x", p.Policy, xxhash.Sum64(text)))
}

func idsFile(rank int) string   { return fmt.Sprintf("rank-%04d.npy", rank) }
func readsFile(rank int) string { return fmt.Sprintf("rank-%04d-reads.npy", rank) }

// Write ranks vertices for every rank of a job by a static policy. For each rank it keeps as many
// vertices as a cache of size alpha holds. It returns the directory. An existing
// ranking is replaced. It ranks for one rank after the other, so it takes the time of all rankings
// but the memory of only one. The graph is mapped.
func Write(
	j *job.Job, p *policy.Policy, m *access.Graph, alpha float64, workers int,
) (string, error) {
	meta := Meta{Format: format, For: newPurpose(j, p)}
	path := meta.For.path(j.Shards.Dir)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return "", err
	}
	making, finished, err := dataset.MakeBeside(path)
	if err != nil {
		return "", err
	}
	defer func() { // removes nothing once the directory is renamed
		_ = os.RemoveAll(making)
		finished()
		_ = os.RemoveAll(making) // removes what NFS has kept of a file until it was closed
	}()
	capacity := access.Capacity(alpha, j.Shards.Vertices, j.Ranks)
	for r := range j.Ranks {
		rank, err := write(making, r, p, m, j.Workload(r, workers), capacity)
		if err != nil {
			return "", fmt.Errorf("rank %d: %w", r, err)
		}
		meta.Ranks = append(meta.Ranks, rank)
	}
	text, err := json.MarshalIndent(&meta, "", " ")
	if err != nil {
		return "", err
	}
	if err := rundir.WriteFile(filepath.Join(making, metaFile), append(text, '\n')); err != nil {
		return "", err
	}
	if err := os.RemoveAll(path); err != nil {
		return "", err
	}
	finished()
	return path, os.Rename(making, path)
}

// write ranks the vertices of one rank.
func write(
	dir string, rank int, p *policy.Policy, m *access.Graph, r *access.Workload, capacity int,
) (of Rank, err error) {
	score, err := p.Rank(m, r)
	if err != nil {
		return of, err
	}
	defer mem.Free(score)
	held, err := m.Top(score, r.Local, capacity)
	if err != nil {
		return of, err
	}
	defer mem.Free(held)
	m.BestFirst(held, score)
	reads, err := m.Reads(r)
	if err != nil {
		return of, err
	}
	defer mem.Free(reads)
	if of.Expected, err = access.Expected(reads, r.Local, nil); err != nil {
		return of, err
	}
	of.Vertices, of.All = len(held), len(held) < capacity
	likely := make([]float32, len(held))
	for i, v := range held {
		likely[i] = reads[v]
	}
	ids := make([]int32, len(held))
	for i, v := range held {
		ids[i] = int32(v)
	}
	_, err1 := npy.WriteFile(filepath.Join(dir, idsFile(rank)), ids, len(ids))
	_, err2 := npy.WriteFile(filepath.Join(dir, readsFile(rank)), likely, len(likely))
	return of, errors.Join(err1, err2)
}

// Ranking is a ranking that has been written.
type Ranking struct {
	Meta
	path     string
	vertices int64
}

// Open finds the ranking of a policy for a job. If it has not been written, the error wraps
// ErrMissing.
func Open(j *job.Job, p *policy.Policy) (*Ranking, error) {
	purpose := newPurpose(j, p)
	r := &Ranking{path: purpose.path(j.Shards.Dir), vertices: j.Shards.Vertices}
	text, err := mem.ReadFile(filepath.Join(r.path, metaFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s does not exist", ErrMissing, r.path)
	}
	if err == nil {
		err = json.Unmarshal(text, &r.Meta)
	}
	if err == nil && (r.Format != format || len(r.Ranks) != j.Ranks) {
		err = fmt.Errorf("it has format %d and is for %d ranks, but this program reads format %d "+
			"and the job has %d ranks", r.Format, len(r.Ranks), format, j.Ranks)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; make the ranking again with `halognn analyze`", r.path, err)
	}
	return r, nil
}

// Hold returns the vertices that a rank's cache holds if it has room for capacity rows. The
// vertices are in ascending order, and lie outside the Go heap. It also returns the number of
// remote rows outside the cache that a minibatch is expected to read. If the ranking is too short,
// the error wraps ErrMissing.
func (r *Ranking) Hold(rank, capacity int) (held []graph.VertexID, left float64, err error) {
	of := r.Ranks[rank]
	if capacity > of.Vertices && !of.All {
		return nil, 0, fmt.Errorf("%w: %s lists only %d vertices for rank %d, whose cache has "+
			"room for %d", ErrMissing, r.path, of.Vertices, rank, capacity)
	}
	n := min(capacity, of.Vertices)
	ids := make([]int32, n)
	likely := make([]float32, n)
	if err := errors.Join(
		first(filepath.Join(r.path, idsFile(rank)), of.Vertices, ids),
		first(filepath.Join(r.path, readsFile(rank)), of.Vertices, likely)); err != nil {
		return nil, 0, err
	}
	left = of.Expected
	held = mem.Make[graph.VertexID](n)
	for i, v := range ids {
		if int64(v) < 0 || int64(v) >= r.vertices {
			mem.Free(held)
			return nil, 0, fmt.Errorf("%s lists vertex %d: %w; make it again with `halognn "+
				"analyze`",
				filepath.Join(r.path, idsFile(rank)), v, graph.ErrVertexRange)
		}
		held[i] = graph.VertexID(v)
		left -= float64(likely[i])
	}
	slices.Sort(held)
	return held, max(0, left), nil
}

// first reads the first len(dst) of the n elements of a file.
func first[T npy.Element](path string, n int, dst []T) error {
	a, err := npy.Map[T](path, n)
	if err != nil {
		return fmt.Errorf("%w; make the ranking again with `halognn analyze`", err)
	}
	copy(dst, a.Data)
	return a.Close()
}
