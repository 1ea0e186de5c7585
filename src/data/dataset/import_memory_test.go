package dataset_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"halognn/src/data/dataset"
	"halognn/tests/race"
)

// Importing E edges needs at most 3 x 8 x E bytes beyond the result. The import runs in a separate
// process, whose peak resident memory the system reports.
func TestImportMemory(t *testing.T) {
	if race.Detector {
		t.Skip("memory is measured without the race detector, which multiplies it")
	}
	const vertices, edges = 100_000, 2_000_000
	if format := os.Getenv("IMPORT_FORMAT"); format != "" { // in the measured process
		before := peak(t)
		r, err := dataset.Import(dataset.ImportOptions{
			Format: format, In: os.Getenv("IMPORT_IN"), Out: os.Getenv("IMPORT_OUT"),
			Undirected: dataset.Yes,
		})
		if err != nil {
			t.Fatal(err)
		}
		result := 8*r.Vertices + 4*r.Edges
		beyond := peak(t) - before - result
		fmt.Printf("%s: peak %d MiB beyond the result of %d MiB, %.1f bytes an edge\n", format,
			beyond>>20, result>>20, float64(beyond)/edges)
		if r.Cleaning.Before != edges || beyond > 3*8*edges {
			t.Errorf("%d edges needed %d bytes beyond the result", r.Cleaning.Before, beyond)
		}
		return
	}
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	var text []byte
	pairs := make([]int64, 2*edges)
	for e := range edges {
		u, v := rng.Int64N(vertices), rng.Int64N(vertices)
		pairs[e], pairs[edges+e] = u, v
		text = strconv.AppendInt(text, 7*u, 10)
		text = append(strconv.AppendInt(append(text, '\t'), 7*v, 10), '\n')
	}
	write(t, filepath.Join(dir, "edges.txt"), text)
	write(t, filepath.Join(dir, "arrays", "edge_index.npy"), array(t, pairs, 2, edges))
	for format, in := range map[string]string{"edgelist": "edges.txt", "npz": "arrays"} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestImportMemory$")
		cmd.Env = append(os.Environ(), "IMPORT_FORMAT="+format, "IMPORT_IN="+filepath.Join(dir, in),
			"IMPORT_OUT="+filepath.Join(dir, "out-"+format))
		out, err := cmd.CombinedOutput()
		t.Logf("%s", bytes.TrimSpace(out))
		if err != nil {
			t.Error(err)
		}
	}
}

// peak returns the peak resident bytes of this process.
func peak(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	fields := strings.Fields(rest)
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
