package cuda

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// Blocks never overlap, and after all are freed the arena has one free range.
func TestArena(t *testing.T) {
	const size = 1 << 16
	random := rand.New(rand.NewPCG(1, 2))
	a := newArena(size + 100)
	owner := make([]int, size/alignment) // block that owns each unit, 0 for none
	blocks := map[int]int{}              // offset to block
	for step := 1; step <= 20000; step++ {
		if len(blocks) > 0 && random.IntN(2) == 0 {
			for at, block := range blocks {
				for u := range owner {
					if owner[u] == block {
						owner[u] = 0
					}
				}
				a.release(at)
				delete(blocks, at)
				break
			}
			continue
		}
		bytes := random.IntN(size / 8)
		at, err := a.alloc(bytes, useModel)
		if err != nil {
			continue
		}
		blocks[at] = step
		for u := at / alignment; u < (at+max(1, bytes)+alignment-1)/alignment; u++ {
			if owner[u] != 0 {
				t.Fatalf("step %d: %d bytes at %d lie on block %d", step, bytes, at, owner[u])
			}
			owner[u] = step
		}
	}
	for at := range blocks {
		a.release(at)
	}
	if len(a.free) != 1 || a.freeBytes() != size {
		t.Errorf("%v is free at the end, want all of %d", a.free, size)
	}
}

func TestArenaSaysWhoHasTheMemory(t *testing.T) {
	a := newArena(1.2e6)
	for u := range uses {
		if _, err := a.alloc(2e5, u); err != nil {
			t.Fatal(err)
		}
	}
	_, err := a.alloc(5e5, useInputs)
	if !errors.Is(err, ErrMemory) {
		t.Fatalf("error %v, want one of %v", err, ErrMemory)
	}
	for _, say := range []string{"0.5 MB for inputs of minibatches",
		"0.2 MB that are free of 1.2 MB", "resident feature rows take 0.2 MB",
		"lower compute.gpu_rows, sample.batch"} {
		if !strings.Contains(err.Error(), say) {
			t.Errorf("%v does not say %q", err, say)
		}
	}
}

func TestFreeingTwicePanics(t *testing.T) {
	a := newArena(1.2e6)
	at, err := a.alloc(10, useModel)
	if err != nil {
		t.Fatal(err)
	}
	a.release(at)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	a.release(at)
}

func TestChoose(t *testing.T) {
	for _, c := range []struct{ device, devices, rank, want int }{{-1, 4, 0, 0}, {-1, 4, 3, 3},
		{-1, 4, 5, 1}, {2, 4, 0, 2}} {
		if got, err := choose(c.device, c.devices, c.rank); err != nil || got != c.want {
			t.Errorf("%+v: device %d, %v", c, got, err)
		}
	}
	for _, c := range []struct {
		device, devices int
		say             string
	}{{-1, 0, "sees no GPU"}, {4, 4, "no device 4; this process sees 4"}} {
		if _, err := choose(c.device, c.devices, 0); err == nil ||
			!strings.Contains(err.Error(), c.say) {
			t.Errorf("%+v: error %v, want %q", c, err, c.say)
		}
	}
}

func TestLocalRank(t *testing.T) {
	for _, name := range localRankNames {
		t.Setenv(name, "")
	}
	for _, c := range []struct {
		name, value string // set besides those of the cases before
		rank        int
		variable    string
	}{
		{"", "", 0, ""}, {"SLURM_LOCALID", "3", 3, "SLURM_LOCALID"},
		{"FLUX_TASK_LOCAL_ID", "x", 3, "SLURM_LOCALID"},
		{"MPI_LOCALRANKID", "1", 1, "MPI_LOCALRANKID"},
		{"OMPI_COMM_WORLD_LOCAL_RANK", "2", 2, "OMPI_COMM_WORLD_LOCAL_RANK"},
	} {
		if c.name != "" {
			t.Setenv(c.name, c.value)
		}
		if rank, variable := LocalRank(); rank != c.rank || variable != c.variable {
			t.Errorf("%s=%s besides: rank %d by %q, want %d by %q", c.name, c.value, rank, variable,
				c.rank, c.variable)
		}
	}
}

func TestSharedDevices(t *testing.T) {
	for _, c := range []struct {
		name    string
		devices int
		ids     []string
		want    int
		fails   bool
	}{
		{"one each", 2, []string{"a", "b"}, 1, false},
		{"one each, of which each sees its own", 1, []string{"a", "b", "c"}, 1, false},
		{"two each", 2, []string{"a", "b", "a", "b"}, 2, false},
		{"uneven", 2, []string{"b", "a", "a"}, 2, false},
		{"all on the first", 2, []string{"a", "a"}, 2, true},
		{"one that could not choose", 2, []string{"a", ""}, 1, false},
	} {
		// Other devices have less; only this one's counts.
		free := []int{60, 50, 40, 30}[:len(c.ids)]
		least := 60
		for i, id := range c.ids {
			if id == "a" {
				least = free[i]
			}
		}
		got, gotFree, err := (&Choice{0, c.devices, "a", 60}).Shared(c.ids, free, "SLURM_LOCALID")
		if got != c.want || gotFree != least || (err != nil) != c.fails || err != nil &&
			!strings.Contains(err.Error(), "by SLURM_LOCALID, though each sees 2") {
			t.Errorf("%s: %d, %v", c.name, got, err)
		}
	}
}

func TestShareOfADevice(t *testing.T) {
	const giga = 1 << 30
	for _, c := range []struct {
		name                             string
		free, memory, processes, atLeast int
		atMost                           int
	}{
		{"an empty H100", 79 * giga, 80 * giga, 1, 74 * giga, 75 * giga},
		{"four on an A30, of which contexts have 2 GB", 22 * giga, 24 * giga, 4, 5 * giga, 5*giga +
			giga/4},
		{"half of it is another process's", 10 * giga, 24 * giga, 1, 8 * giga, 9 * giga},
		{"none is free", giga / 8, 24 * giga, 2, 0, 0},
		{"a small one", giga / 4, giga / 4, 0, giga * 3 / 16, giga * 3 / 16},
	} {
		if got := share(c.free, c.memory, c.processes); got < c.atLeast || got > c.atMost ||
			got*c.processes > c.free {
			t.Errorf("%s: %d bytes, want from %d to %d", c.name, got, c.atLeast, c.atMost)
		}
	}
}
