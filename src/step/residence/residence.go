// Package residence decides and records where a rank finds feature rows: which it reads from
// memory, which remote rows it caches, and which are resident on its device. It affects traffic and
// time, but no number of the training.
//
//	Open         parts of the rank and of its node ──> Tables: mapped, read where they lie
//	OpenDevice   the rows that are read most ──> device memory, if the device has its own
//	Choose       counts what every policy would transfer; trials of the best ──> Auto
//	OpenCache    policy ──┬─ static    ranked once, fetched before the first step
//	                      ├─ group     the same, spread over the ranks of a node in shared memory
//	                      └─ dynamic   first fill fetched; a cache.Policy decides from then on,
//	                                   for its rank or, as a buyer, for its node
//	             each predicts the rows that a step transfers
//	Fetcher      the exchange of rows that lie in Tables, in the cache, or elsewhere
//
// A Store lasts as long as a run; a Cache may be closed and another opened between two epochs.
// Packages policy, access and cache decide which rows are worth keeping; package exchange moves
// rows. This package opens, fills and closes the caches.
package residence

import (
	"errors"
	"fmt"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/data/shard"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/rows/access"
	"halognn/src/rows/exchange"
	"halognn/src/step/job"
	"halognn/src/topology/sample"
)

// Options describe a rank and its job. The job is the same on all ranks.
type Options struct {
	Comm         comm.Comm
	RanksPerNode int // number of ranks that are treated as a node; if 0, nodes are detected
	Job          *job.Job
	Host         compute.Host
	Learned      *nn.Learned    // rows that the model learns
	Workers      int            // threads for ranking and counting
	SetUp        *trace.SetUp   // times each item of set-up; may be nil
	Alive        func()         // called while rows are fetched in bulk; may be nil
	Note         func(string)   // shows a note to the user; may be nil
	Device       compute.Device // the rank's device, for OpenDevice
	GPU          GPU            // which rows the device holds, for OpenDevice
}

// Store knows the rows that a rank can read without fetching them from another rank.
type Store struct {
	Options
	// Tables [P] are the rows of this rank's parts and of the other ranks of its node. Other parts
	// are nil, unless rows come from the files. Rows in Tables are read in place and not sent.
	// Ranks that share minibatches have only their own parts, and send each other rows. If ranks
	// hold columns, minibatches read the columns, and only layer-wise inference reads Tables.
	Tables [][]byte
	// DeviceRows holds the entries of all ranks, after OpenDevice; none for devices that read host
	// memory.
	DeviceRows []DeviceRows

	// HostDraws says, after OpenDevice, why minibatches cannot be drawn on this rank's device. It
	// is "" if the job and the memory that the model leaves allow it.
	HostDraws string

	first, last int // own parts [first, last)
	// [P] tables that minibatches read: Tables or, if ranks hold columns, the columns.
	read       [][]byte
	kinds      []exchange.Kind // kinds of the rows in read, one for each vertex type
	node       comm.Comm       // ranks that fetch as one; nil if each rank fetches for itself
	columns    int64           // bytes of the columns, if read is not Tables
	edgeTables [][]byte        // [P] edge features of the parts in Tables; see OpenEdgeRows
	whole      *shard.Shards   // the whole graph while it is analysed; nil otherwise
	closers    mem.Closers
}

// Open finds the ranks that share this node's memory, records them in the job, and maps their
// parts. Collective. The store must be closed even after an error.
func Open(o Options) (*Store, error) {
	s := &Store{Options: o}
	s.first, s.last = o.Job.Parts(o.Comm.Rank())
	here, err := comm.RanksHere(s.Comm, s.RanksPerNode)
	if err != nil {
		return s, err
	}
	if err := s.checkNode(here); err != nil {
		return s, err
	}
	leaders, err := comm.Allgather(s.Comm, here[0]) // first rank of each rank's node
	if err != nil {
		return s, err
	}
	s.Job.SetNodes(leaders)
	if s.Job.FetchesAsNodes() {
		if s.node, err = comm.NodeOf(s.Comm, s.RanksPerNode); err != nil {
			return s, err
		}
		s.closers = append(s.closers, s.node.Free)
	} else if s.Job.AsNodes && !s.Job.TryNodes {
		s.note("exchange.nodes=on changes nothing: there is one node, or one rank on each; " +
			"launch several ranks on each of several nodes")
	}
	switch {
	case s.Job.Mode.Sharing != sample.Alone: // other ranks send their rows themselves
		here = []int{s.Comm.Rank()}
	case s.Job.Cache.FromFiles():
		here = here[:0]
		for r := range s.Comm.Size() {
			here = append(here, r)
		}
	}
	if err := comm.Agree(s.Comm, s.mapParts(here)); err != nil {
		return s, err
	}
	s.read, s.kinds = s.Tables, job.Rows(&s.shards().Meta)
	if s.Job.Mode.Columns {
		return s, s.readColumns()
	}
	return s, nil
}

// checkNode rejects pretended nodes that span real ones, because ranks would map each other's parts
// over the network. Collective.
func (s *Store) checkNode(group []int) error {
	if s.RanksPerNode == 0 {
		return nil
	}
	real, err := comm.RanksHere(s.Comm, 0)
	if err != nil {
		return err
	}
	for _, r := range group {
		if !slices.Contains(real, r) {
			err = fmt.Errorf("run.ranks_per_node is %d, but ranks %d and %d are on different "+
				"nodes; set it to a divisor of the ranks that are launched on a node, or to 0",
				s.RanksPerNode, group[0], group[len(group)-1])
			break
		}
	}
	return comm.Agree(s.Comm, err)
}

// mapParts opens the parts of the given ranks.
func (s *Store) mapParts(ranks []int) error {
	types := s.shards().Schema.NumTypes()
	s.Tables = make([][]byte, s.shards().Parts*types)
	for _, r := range ranks {
		first, last := s.Job.Parts(r)
		for p := first * types; p < last*types; p++ {
			part, err := s.shards().OpenPart(p)
			if err != nil {
				return err
			}
			s.closers = append(s.closers, part.Close)
			s.Tables[p] = part.Features
		}
	}
	return nil
}

// Bytes returns the bytes of the mapped parts, including edge features that are read.
func (s *Store) Bytes() (n int64) {
	for _, table := range slices.Concat(s.Tables, s.edgeTables) {
		n += int64(len(table))
	}
	return n
}

// Fetcher makes the exchange for what minibatches read: feature rows in Tables, in the cache c
// (which may be nil) and on other ranks, or columns of rows. If `learned` is true, it also
// exchanges learned rows, which must not change meanwhile. Collective.
func (s *Store) Fetcher(c *Cache, learned bool) (*exchange.Fetcher, error) {
	o := s.exchangeOptions(s.rows(), slices.Clone(s.kinds))
	o.Offsets, o.Stored = s.shards().Ranges(), s.Job.Cache.FromFiles()
	if c != nil {
		o.Cache, o.Buffer, o.Kept = c.fixed, c.buffer(), c.kept()
		if o.Node != nil {
			o.Node.Keeps = o.Buffer != nil && s.Job.Divides(&c.Settings)
		}
	}
	if learned && s.Learned.Cols > 0 {
		s.addLearned(&o)
	}
	return exchange.Open(s.Comm, o)
}

// FetcherOf makes an exchange of other rows that are distributed like the vertices: rows.Tables [P]
// has the rows of this rank's parts. Collective.
func (s *Store) FetcherOf(rows compute.Rows) (*exchange.Fetcher, error) {
	if rows.Cols < 1 { // the same on all ranks
		return nil, fmt.Errorf("rows have %d columns; they need at least 1", rows.Cols)
	}
	return exchange.Open(s.Comm,
		s.exchangeOptions(rows, []exchange.Kind{{Cols: rows.Cols, Type: rows.Type}}))
}

// rows describes the rows that minibatches read, without references.
func (s *Store) rows() compute.Rows {
	rows := s.shards().Rows()
	if rows.Tables = s.read; s.Job.Mode.Columns && rows.Scale != nil {
		first, end := s.Columns()
		rows.Scale = rows.Scale[first:end]
	}
	rows.Cols = s.kinds[0].Cols
	return rows
}

func (s *Store) exchangeOptions(rows compute.Rows, kinds []exchange.Kind) exchange.Options {
	o := exchange.Options{Offsets: s.shards().Offsets, Tables: rows.Tables, Kinds: kinds,
		Scale: rows.Scale, Ends: rows.Ends, Host: s.Host, Sums: s.Job.OwnersSums(),
		Window: s.Job.Window}
	o.Node = s.asNode()
	return o
}

// asNode returns the node with which this rank fetches; nil if it fetches for itself.
func (s *Store) asNode() *exchange.Node {
	if s.node == nil || !s.Job.AsNodes { // AsNodes may have been set to false since Open
		return nil
	}
	return &exchange.Node{Comm: s.node, Of: s.Job.NodeOf()}
}

// Close frees everything, in the reverse order of opening.
func (s *Store) Close() error { return s.closers.Close() }

func (s *Store) shards() *shard.Shards { return s.Job.Shards }

// workload describes the minibatches of this rank.
func (s *Store) workload() *access.Workload {
	r := s.Job.Workload(s.Comm.Rank(), s.Workers)
	if s.whole != nil {
		r.Topology = s.whole.Topology()
	}
	return r
}

// graph prepares the topology for the analyses of package access.
func (s *Store) graph() (*access.Graph, error) {
	shards := s.shards()
	switch {
	case s.whole != nil:
		shards = s.whole
	case s.Job.Partitioned:
		return nil, errors.New("an analysis needs the whole topology; this rank has a part of it")
	}
	t := shards.Topology()
	return access.New(&t.Graph, access.Options{Workers: s.Workers, Columns: &t.Columns})
}

func (s *Store) note(format string, args ...any) {
	if s.Note != nil {
		s.Note(fmt.Sprintf(format, args...))
	}
}
