// Package kaminpar partitions with KaMinPar. Its TeraPart mode keeps the graph compressed, so it
// makes cuts like those of METIS in a small part of the memory.
//
//	CSC ──> ParHIP file ──> python3, a process of its own ──> assignment .npy ──> part [N], repaired
//	        streamed        mapped, compressed, cut
//
// The process is Python with KaMinPar's wheel from PyPI (`make setup-kaminpar`). KaMinPar balances
// only one weight for each vertex, so it gets partition.Combined; partition.Balance then brings
// each constraint within its limit.
//
// Source: Gottesbüren, Heuer, Sanders, Schulz and Seemaier, Deep multilevel graph partitioning, ESA
// 2021; Salwasser, Seemaier, Gottesbüren and Sanders, Tera-scale multilevel graph partitioning,
// 2024.
package kaminpar

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
	"halognn/src/topology/partition/assignment"
)

//go:embed cut.py
var script string

// ErrMissing is wrapped by the error that KaMinPar is not installed.
var ErrMissing = errors.New("KaMinPar is not installed")

// From manyParts parts on, KaMinPar's configuration for many parts (terapart-largek) makes better
// cuts.
const manyParts = 1024

// python returns the Python interpreter in which KaMinPar is installed.
func python() string { return cmp.Or(os.Getenv("HALOGNN_KAMINPAR_PYTHON"), "python3") }

// Find asks the interpreter for KaMinPar, and returns its name and version, such as "KaMinPar
// 3.7.3".
func Find() (string, error) {
	said, err := exec.Command(python(), "-c", script).CombinedOutput()
	if text := strings.TrimSpace(string(said)); err != nil {
		return "", fmt.Errorf("%w for %s (%s); run `pip install kaminpar` (or `make "+
			"setup-kaminpar`), and name its Python in HALOGNN_KAMINPAR_PYTHON, or use --method ldg",
			ErrMissing, python(), cmp.Or(text[strings.LastIndex(text, "\n")+1:], err.Error()))
	} else {
		return "KaMinPar " + text, nil
	}
}

// KWay returns the partition method that runs KaMinPar. The function scratch makes a directory with
// room for a file of 16 bytes a vertex and 4 for each direction of an edge; the caller removes the
// directory. With one thread, equal seeds give equal parts. With more threads they do not, and
// Options.Note gets a line about it. Note also gets the time and memory.
//
// The process took 10 bytes of memory an edge for 4 parts of 120 million edges, and 15 for 16
// parts, not counting the mapped pages of the file.
func KWay(threads int, scratch func() (string, error)) partition.Func {
	return func(g *graph.CSC, w partition.Weights, o partition.Options) ([]int32, error) {
		if err := partition.Check(g, w, o); err != nil {
			return nil, err
		}
		if o.Parts == 1 {
			return make([]int32, g.NumVertices()), nil
		}
		name, err := Find()
		if err != nil {
			return nil, err
		}
		dir, err := scratch()
		if err != nil {
			return nil, err
		}
		file, n := filepath.Join(dir, "graph.parhip"), g.NumVertices()
		if err := writeParHIP(file, g, w.Edge, partition.Combined(n, w, o, nil)); err != nil {
			return nil, fmt.Errorf("writing a file of the graph for %s: %w; the file takes 16 "+
				"bytes a vertex and 4 an edge, on the disk of --out", name, err)
		}
		if threads > 1 {
			o.Tell("with several threads KaMinPar makes different parts in each run; --threads " +
				"1 makes the same parts in each run")
		}
		var best []int32
		var least int64
		emphasis := slices.Repeat([]float64{1}, len(partition.Constraints(n, w, o)))
		for try := range tries {
			begin := time.Now()
			used, err := cut(dir, file, threads, o)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			part, err := assignment.Read(filepath.Join(dir, "part.npy"), n, o.Parts)
			if err != nil {
				return nil, err
			}
			for c, x := range partition.Imbalances(n, w, o, part) {
				emphasis[c] *= x * x
			}
			moves := partition.Balance(g, w, o, part)
			if moves > 0 {
				partition.Refine(g, w, o, part)
			}
			cost := partition.CutWeight(g, w.Edge, part)
			if best == nil || cost < least {
				best, least = part, cost
			}
			o.Tell("%s, %d threads: %.1f s, %.1f MB of memory, %.1f MB of the graph's file "+
				"mapped; balancing moved vertices %d times; the cut edges weigh %d", name, threads,
				time.Since(begin).Seconds(), float64(used.private)/1e6, float64(used.files)/1e6,
				moves, cost)
			if moves <= n/fewMoves || len(emphasis) == 1 || try == tries-1 {
				break
			}
			if err := reweigh(file, partition.Combined(n, w, o, emphasis)); err != nil {
				return nil, err
			}
		}
		return partition.Renumber(g, w, best, o.Parts), nil
	}
}

// If Balance has to move more than one in fewMoves of the vertices, the cut becomes much worse. So
// KaMinPar then runs again, with more weight on the constraints that were exceeded. It runs at most
// tries times, and the best of the results is kept.
const tries, fewMoves = 4, 50

// usage is the largest memory that a process was seen to have, in bytes: private pages, and pages
// of mapped files.
type usage struct{ private, files int64 }

// cut runs the Python process and returns its largest memory. The kernel kills the process if this
// one ends.
func cut(dir, file string, threads int, o partition.Options) (most usage, err error) {
	context := "terapart"
	if o.Parts >= manyParts {
		context = "terapart-largek"
	}
	c := exec.Command(python(), "-c", script, file, strconv.Itoa(o.Parts),
		strconv.FormatUint(o.Seed&(1<<31-1), 10), strconv.Itoa(threads), context,
		filepath.Join(dir, "part.npy"))
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	// the kernel sends the signal when the thread that started the process ends, so keep the thread
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return most, err
	}
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			if private, files, err := mem.ResidentOf(c.Process.Pid); err == nil {
				most.private, most.files = max(most.private, private), max(most.files, files)
			}
			select {
			case <-ended:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	err = c.Wait()
	close(ended)
	<-watched
	if err == nil {
		return most, nil
	}
	text := strings.TrimSpace(said.String())
	if at := len(text) - 500; at > 0 {
		text = "..." + text[at:]
	}
	if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() ||
		strings.Contains(text, "MemoryError") || strings.Contains(text, "bad_alloc") {
		text += fmt.Sprintf("; it used %.1f MB of memory; if memory ran out, use a larger "+
			"machine, or --method ldg", float64(most.private)/1e6)
	}
	return most, fmt.Errorf("it ended without parts (%w): %s", err, text)
}
