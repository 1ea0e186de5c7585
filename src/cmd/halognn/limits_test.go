package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/forecast/doctor"
	"halognn/src/forecast/plan"
	"halognn/src/ranks/comm"
	"halognn/src/runs/config"
)

// A limit below what the program takes is named with its cure; more CPUs take more addresses.
func TestEnoughForProgram(t *testing.T) {
	const none = math.MaxInt64
	for _, c := range []struct {
		addresses, data int64
		cpus            int
		want            string
	}{
		{none, none, 4096, ""}, {4 << 30, none, 8, ""}, {4 << 30, none, 9, "ulimit -v unlimited"},
		{2000000 << 10, none, 1, "(ulimit -v) is 2048.0 MB"}, {none, 256 << 20, 64, ""},
		{none, 256<<20 - 1, 1, "ulimit -d unlimited"},
	} {
		err := enoughForProgram(mem.Limits{Addresses: c.addresses, Data: c.data}, c.cpus)
		if (err == nil) != (c.want == "") || err != nil &&
			(codeOf(err) != exitUsage || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%d, %d, %d CPUs: %v", c.addresses, c.data, c.cpus, err)
		}
	}
}

// What exceeds the headroom of a node or of a process is refused by its largest item, with a cure;
// what files back counts as addresses alone.
func TestLacks(t *testing.T) {
	const none = math.MaxInt64
	m := trace.Memory{{Name: trace.MemFeatures, Bytes: 5e9, Shared: true},
		{Name: trace.MemParameters, Bytes: 1e9}, {Name: trace.MemHeap, Bytes: 1e6}}
	for _, c := range []struct {
		node, addresses, data int64
		want                  string
	}{
		{5e9, none, none, ""}, {4e9, none, none, "the largest item is model (4000.0 MB): lower " +
			"model.hidden"},
		{5e9, 10e9, none, ""}, {5e9, 6.5e9, none, "(ulimit -v)"}, {5e9, none, 2.1e9, ""},
		{5e9, none, 2e9, "the 2 ranks of a process need 2002.0 MB, and 2000.0 MB are left by its " +
			"limit (ulimit -d)"},
	} {
		x := headroom{node: c.node, process: mem.Limits{Addresses: c.addresses, Data: c.data},
			ranks: 4, together: 2}
		err := x.checkMemory(m, "need")
		if (err == nil) != (c.want == "") || err != nil &&
			(codeOf(err) != exitUsage || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v", c, err)
		}
	}
	// of a limit large arrays leave some to the program
	x := headroom{node: none, process: mem.Limits{Addresses: none, Data: 1250e6}, ranks: 1,
		together: 1}
	small := trace.Memory{{Name: trace.MemParameters, Bytes: 1e6}, {Name: trace.MemRuntime,
		Bytes: 1100e6}}
	if x.checkMemory(m, needAtLeast) != nil || x.checkMemory(m, predicted) == nil ||
		x.checkMemory(small, predicted) != nil {
		t.Errorf("at least: %v; predicted: %v; of small arrays: %v", x.checkMemory(m, needAtLeast),
			x.checkMemory(m, predicted), x.checkMemory(small, predicted))
	}
}

// Threads that others took for a moment refuse no job; a limit does.
func TestEnoughToStart(t *testing.T) {
	tries := 0
	if err := enoughToStart(8, 0, func(n int) int { tries++; return n - 2 + tries }); err != nil ||
		tries != 2 {
		t.Errorf("%d tries: %v", tries, err)
	}
	if err := enoughToStart(8, 0, func(int) int { return 7 }); codeOf(err) != exitUsage ||
		!strings.Contains(err.Error(), "may start only 7") {
		t.Error(err)
	}
}

// What MPI may lack is told where it may: nothing of a usual node.
func TestNotesOfLimits(t *testing.T) {
	usual := doctor.Limits{SharedFree: 64 << 20, InfiniBand: true}
	few, none, ethernet := usual, usual, usual
	few.SharedFree, none.SharedFree = 1<<20, -1
	ethernet.InfiniBand, ethernet.Locked = false, 8<<20
	locked := usual
	locked.Locked = 8 << 20
	for _, c := range []struct {
		of   doctor.Limits
		want string
	}{{usual, ""}, {none, ""}, {ethernet, ""}, {few, "--shm-size"}, {locked, "ulimit -l"}} {
		notes := strings.Join(notesOfLimits(c.of), "\n")
		if (notes == "") != (c.want == "") || !strings.Contains(notes, c.want) {
			t.Errorf("%+v: %q, want %q", c.of, notes, c.want)
		}
	}
}

// Parts that do not fit are told where the job opens; what the plan refuses does not run.
func TestWithoutPlan(t *testing.T) {
	for _, err := range []error{nil, plan.ErrParts} {
		if got := withoutPlan(err); got != nil {
			t.Errorf("%v: %v", err, got)
		}
	}
	if got := withoutPlan(plan.ErrJob); codeOf(got) != exitUsage {
		t.Errorf("%v: %v", plan.ErrJob, got)
	}
	if withoutPlan(fs.ErrNotExist) != fs.ErrNotExist {
		t.Error("a failure to read is lost")
	}
}

// alone returns the job of one rank on a node with 1 GB.
func alone() rankJob {
	j := rankJob{comm: comm.NewWorld(1).Rank(0),
		headroom: headroom{node: 1 << 30, ranks: 1, together: 1,
			process: mem.Limits{Addresses: math.MaxInt64, Data: math.MaxInt64}}}
	j.env.Shards = new(shard.Shards)
	return j
}

// What a plan says refuses a job, and what becomes of the plan does not: neither its own lack of
// memory nor a fault of it. What it took is not of the run, whose memory is looked at from then on.
func TestEnough(t *testing.T) {
	j := alone()
	of := func(bytes int64) trace.Memory {
		return trace.Memory{{Name: trace.MemWindow,
			Bytes: bytes}}
	}
	for name, c := range map[string]struct {
		planned func() (trace.Memory, error)
		code    int
	}{
		"enough":     {func() (trace.Memory, error) { return of(1 << 20), nil }, 0},
		"too little": {func() (trace.Memory, error) { return of(1 << 31), nil }, exitUsage},
		"refused":    {func() (trace.Memory, error) { return nil, plan.ErrJob }, exitUsage},
		"large": {func() (trace.Memory, error) {
			defer mem.Free(mem.Make[byte](1 << 30))
			return of(1 << 20), nil
		}, 0},
		"a fault": {func() (trace.Memory, error) { return nil, errors.New("exchange: no part") },
			0},
	} {
		if err := j.enough(c.planned); (err != nil) != (c.code != 0) || err != nil &&
			codeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
		if peak := mem.PeakAllocated(); peak != mem.Allocated() {
			t.Errorf("%s: a peak of %d bytes is left, with %d in use", name, peak, mem.Allocated())
		}
	}
}

// A simulation is refused by what its counts take.
func TestEnoughForCounts(t *testing.T) {
	if err := enoughForCounts(1 << 20); err != nil {
		t.Error(err)
	}
	if err := enoughForCounts(1 << 60); err == nil || !strings.Contains(err.Error(), "--epochs") {
		t.Errorf("an exabyte: %v", err)
	}
}

// A prediction that fails ends no run; what it finds of the job or of its files does.
func TestUnpredicted(t *testing.T) {
	for _, err := range []error{errors.New("exchange: no part"), withCode(exitBug, &mem.Panic{}),
		fmt.Errorf("plan: %w", mem.ErrMemory)} {
		if !unpredicted(err) {
			t.Errorf("%v ends a run", err)
		}
	}
	for _, err := range []error{nil, usageError(plan.ErrJob), dataError(shard.ErrAltered),
		mem.ErrShrank} {
		if unpredicted(err) {
			t.Errorf("%v does not end a run", err)
		}
	}
}

// What sizes tell is enough to let a job with plenty of memory begin, whatever it learns or reads
// of edges; of types they tell too little, on GPUs as on CPUs.
func TestUnsure(t *testing.T) {
	bare := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{EdgeFeatures: true}),
		shardtest.Options{Parts: 1})
	typed := shardtest.Open(t, dataset.GenerateOptions{Kind: "mag", Vertices: 300, Features: 4,
		Classes: 4, Seed: 1}, shardtest.Options{Parts: 1})
	x := headroom{node: 1 << 50, ranks: 1, together: 1,
		process: mem.Limits{Addresses: math.MaxInt64, Data: math.MaxInt64}}
	for name, c := range map[string]struct {
		parts *shard.Shards
		sets  []string
		want  bool
	}{
		"learned": {bare, []string{"model.kind=sage", "model.learned=8",
			"model.edge_features=false"}, false},
		"features of edges": {bare, []string{"model.kind=gine", "model.learned=8"}, false},
		"types":             {typed, []string{"model.kind=rgcn", "model.learned=8"}, true},
		"types on a GPU": {typed, []string{"model.kind=rgcn", "model.learned=8",
			"compute.device=cuda"}, true},
		"none on a GPU": {bare, []string{"model.kind=sage", "model.learned=8",
			"compute.device=cuda"}, false},
	} {
		cfg, err := config.Load("", append(c.sets, "run.dir=out", "data.parts="+c.parts.Dir))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if unsure, err := x.fits(comm.NewWorld(1).Rank(0), cfg, training); unsure != c.want ||
			err != nil {
			t.Errorf("%s: unsure is %t (%v)", name, unsure, err)
		}
	}
	x.node = 75 << 20 // enough for the least that it may take
	cfg, err := config.Load("", []string{"run.dir=out", "data.parts=" + bare.Dir, "model.kind=gine",
		"model.learned=8"})
	if err != nil {
		t.Fatal(err)
	}
	if unsure, err := x.fits(comm.NewWorld(1).Rank(0), cfg, training); !unsure || err != nil {
		t.Errorf("too little for the most: unsure is %t (%v)", unsure, err)
	}
}
