//go:build e2e

package tests

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"halognn/tests/race"
)

var (
	extremes     = flag.Int("extremes", 30, "extreme settings that TestExtremes draws")
	extremesFrom = flag.Uint64("extremes-from", 1, "seed of the first of them")
)

const mostInt = "9223372036854775807"

// ofExtremes has the extreme values that docs/config.md allows.
var ofExtremes = []choice{
	{"model.hidden", []string{"65536", "12000", "1"}},
	{"model.layers", []string{"64", "1"}},
	{"model.kind", []string{"gat", "gatv2", "gcn", "gin", "mlp", "sage"}},
	{"model.heads", []string{"1024"}},
	{"model.head_merge", []string{"mean"}},
	{"model.norm", []string{"batch", "layer"}},
	{"model.jumping", []string{"cat", "max"}},
	{"model.dropout", []string{"0.999999"}},
	{"sample.kind", []string{"poisson", "ladies", "labor"}},
	{"sample.share", []string{"node", "all"}},
	{"sample.dependency", []string{"1073741824", "64"}},
	{"sample.layer_dependency", []string{"true"}},
	{"sample.layer_vertices", []string{"2147483647", "1"}},
	{"sample.locality_vertices", []string{"2147483647"}},
	{"sample.batch", []string{"1", "2147483647"}},
	{"sample.batch_scope", []string{"global"}},
	{"sample.seeds", []string{"global"}},
	{"sample.streams", []string{"part"}},
	{"train.epochs", []string{"1000000000", "1"}},
	{"train.lr", []string{"1e300", "5e-324"}},
	{"train.warmup_steps", []string{mostInt}},
	{"train.step_epochs", []string{"1000000000"}},
	{"train.eval_every", []string{"0", mostInt}},
	{"train.eval_mode", []string{"full"}},
	{"train.patience", []string{mostInt}},
	{"train.optimizer", []string{"sgd", "adamw"}},
	{"train.weight_decay", []string{"1e300"}},
	{"exchange.window", []string{"1", mostInt}},
	{"exchange.sums", []string{"on", "auto"}},
	{"cache.policy", []string{"lookahead", "prefetch", "vip", "sieve", "sim", "oracle", "auto",
		"degree"}},
	{"cache.alpha", []string{"1e300", "0"}},
	{"cache.halo_fraction", []string{"1", "5e-324"}},
	{"cache.halo_hops", []string{"64"}},
	{"cache.delta", []string{"1", mostInt}},
	{"cache.window", []string{"1", mostInt}},
	{"cache.placement", []string{"group"}},
	{"cache.source", []string{"files"}},
	{"pipeline.depth", []string{"0", "65536"}},
	{"pipeline.workers", []string{"1", "4096"}},
	{"compute.threads", []string{"1", "4096"}},
	{"parallel.mode", []string{"split", "hybrid", "push-pull"}},
	{"topology.kind", []string{"partitioned"}},
	{"topology.load", []string{"copy"}},
	{"checkpoint.every_steps", []string{"1", mostInt}},
	{"checkpoint.every_minutes", []string{"1e300", "0"}},
	{"checkpoint.keep", []string{mostInt}},
	{"run.ranks_per_node", []string{"1", mostInt}},
	{"run.stall_seconds", []string{"1e6"}},
}

// With any combination of documented extremes, and limited memory, a command ends in order with a
// message of its own, or works until it is asked to stop. It never ends with stacks of the Go
// runtime or by a signal.
func TestExtremes(t *testing.T) {
	unlessShort(t)
	if race.Detector {
		t.Skip("the race detector takes more addresses than any limit")
	}
	parts := smallParts.dir(t)
	for n := range *extremes {
		seed := *extremesFrom + uint64(n)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { tryExtreme(t, parts, seed) })
	}
}

func tryExtreme(t *testing.T, parts string, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 26))
	layers, sets := 2, []string{"run.ranks_per_node=1", "train.epochs=1"}
	fanout := []string{"2147483647", "-1", "1", "10"}[random.IntN(4)]
	for _, i := range random.Perm(len(ofExtremes))[:1+random.IntN(5)] {
		c := ofExtremes[i]
		value := c.values[random.IntN(len(c.values))]
		if c.key == "model.layers" {
			_, _ = fmt.Sscan(value, &layers)
			continue
		}
		sets = append(sets, c.key+"="+value)
	}
	fanouts := strings.TrimSuffix(strings.Repeat(fanout+",", layers), ",")
	sets = append(sets, fmt.Sprint("model.layers=", layers), "sample.fanouts="+fanouts)
	args := trainArgs(t, parts, filepath.Join(t.TempDir(), "out"), sets...)
	switch random.IntN(5) {
	case 0:
		args = append([]string{"plan"}, args[1:]...)
	case 1:
		args = append(args, "--dry-run", "--ranks-in-process", "4")
	case 2:
		args = append(args, "--ranks-in-process", "1")
	default:
		args = append(args, "--ranks-in-process", "4")
	}
	// What the program alone needs, plus 1.5 GiB.
	limit := 3584<<10 + runtime.NumCPU()*(256<<10)
	command := fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, limit)
	j := start(t, nil, "bash", append([]string{"-c", command, halognn(t).path}, args...)...)
	stop := time.AfterFunc(5*time.Second, func() { _ = j.Process.Signal(syscall.SIGTERM) })
	defer stop.Stop()
	r := j.wait(t)
	told := strings.Contains(r.err, "halognn: ")
	stopped := r.code == -1 && strings.HasPrefix(args[0], "plan") // plan does not handle the signal
	if strings.Contains(r.err, "goroutine ") || strings.Contains(r.err, "SIG") ||
		r.code != 0 && !stopped && (r.code < 0 || r.code > 75 || !told) {
		t.Errorf("%v", r)
	}
}
