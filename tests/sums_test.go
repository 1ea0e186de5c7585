//go:build e2e

package tests

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"halognn/src/base/trace"
)

// wideParts and byteParts are a graph in 8 parts with float16 and with int8 rows. The rows are wide
// enough, compared with ids, for sums to pay.
var (
	wideParts = &fixture{name: "wide-8", make: widePartsOf("float16", 65)}
	byteParts = &fixture{name: "byte-8", make: widePartsOf("int8", 130)}
)

func widePartsOf(featureType string, columns int) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		data := filepath.Join(t.TempDir(), "data")
		halognn(t).must(t, "generate", "--vertices", "2000", "--degree", "12", "--features",
			strconv.Itoa(
				columns), "--classes", "5", "--feature-type", featureType, "--seed", "1", "--out",
			data)
		halognn(t).must(t, "partition", "--data", data, "--parts", "8", "--method", "ldg", "--out",
			dir)
	}
}

// Sums that owners make change what is sent, never a number: for every aggregation, cache, number
// of ranks, parts and ranks a node, depth, kind of rows and topology, in training and in the final
// test with all neighbours.
func TestSumsChangeNoNumber(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	small, wide, weighted := smallParts.dir(t), wideParts.dir(t), weightedParts.dir(t)
	bytes := byteParts.dir(t)
	for _, c := range []struct {
		parts string
		ranks int
		sets  []string
	}{
		{small, 1, []string{"cache.policy=none"}},
		{small, 2, []string{"cache.policy=none", "train.eval_mode=full"}},
		{small, 4, []string{"cache.policy=lookahead", "cache.alpha=0.2", "pipeline.depth=0"}},
		{small, 4, []string{"cache.policy=prefetch", "cache.delta=4", "pipeline.depth=6",
			"pipeline.workers=3"}},
		{small, 8, []string{"cache.policy=sieve", "run.ranks_per_node=2"}},
		{small, 4, []string{"cache.policy=vip", "run.ranks_per_node=2", "cache.placement=group"}},
		{small, 4, []string{"cache.policy=none", "topology.kind=partitioned"}},
		{small, 2, []string{"cache.policy=degree", "sample.streams=part", "sample.seeds=global"}},
		{small, 4, []string{"cache.policy=none", "model.aggregation=max", "train.eval_mode=full"}},
		{small, 4, []string{"cache.policy=lookahead", "model.kind=gin", "train.eval_mode=full"}},
		{small, 4, []string{"cache.policy=vip", "model.kind=gcn", "model.gcn_norm=both",
			"train.eval_mode=full"}},
		{small, 2, []string{"cache.policy=none", "model.kind=gcn", "model.layers=1",
			"sample.fanouts=20"}},
		{small, 2, []string{"cache.policy=none", "sample.kind=ladies",
			"sample.layer_vertices=300"}},
		{weighted, 4, []string{"cache.policy=none", "train.eval_mode=full"}},
		{weighted, 2, []string{"cache.policy=lookahead", "model.kind=gcn"}},
		{wide, 4, []string{"cache.policy=none", "sample.fanouts=20,10"}},
		{wide, 2, []string{"cache.policy=lookahead", "sample.fanouts=20,10", "pipeline.depth=3",
			"train.eval_mode=full"}},
		{wide, 4, []string{"cache.policy=none", "sample.fanouts=20,10", "model.kind=gcn",
			"model.aggregation=max"}},
		{bytes, 4, []string{"cache.policy=none", "sample.fanouts=20,10"}},
		{bytes, 2, []string{"cache.policy=lookahead", "sample.fanouts=20,10", "model.kind=gin",
			"train.eval_mode=full"}},
		{bytes, 4, []string{"cache.policy=vip", "sample.fanouts=20,10", "model.kind=gcn",
			"model.gcn_norm=both"}},
		{bytes, 4, []string{"cache.policy=none", "sample.fanouts=20,10", "model.aggregation=max",
			"topology.kind=partitioned"}},
	} {
		t.Run(fmt.Sprint(c.ranks, " ranks ", c.sets), func(t *testing.T) {
			t.Parallel()
			sets := append([]string{"run.ranks_per_node=1"}, c.sets...)
			rows := trained(t, c.parts, c.ranks, sets...)
			sums := trained(t, c.parts, c.ranks, append(sets, "exchange.sums=on")...)
			sameNumbers(t, sums, rows)
			fewer(t, sums, rows, c.ranks > 1)
		})
	}
}

// fewer fails the test unless the frontier has the same rows, and fewer bytes were sent for them.
func fewer(t *testing.T, sums, rows *outcome, travel bool) {
	t.Helper()
	if (sums.Sums > 0) != travel || rows.Sums != 0 {
		t.Errorf("%d sums travelled, and %d without them", sums.Sums, rows.Sums)
	}
	if travel && sums.RemoteBytes+sums.IDBytes >= rows.RemoteBytes+rows.IDBytes {
		t.Errorf("%d bytes and %d of ids, not fewer than %d and %d without sums", sums.RemoteBytes,
			sums.IDBytes, rows.RemoteBytes, rows.IDBytes)
	}
	got := sums.Local + sums.Cached + sums.Peer + sums.Fetched + sums.Summed
	want := rows.Local + rows.Cached + rows.Peer + rows.Fetched
	if got < want-1 || got > want+1 { // means over epochs, each rounded down
		t.Errorf("the frontier has %d rows, and %d without sums", got, want)
	}
}

// The same holds under either MPI.
func TestSumsUnderMPI(t *testing.T) {
	launcher(t)
	for _, c := range []struct {
		parts string
		ranks int
		sets  []string
	}{
		{smallParts.dir(t), 4, []string{"run.ranks_per_node=2", "cache.policy=prefetch"}},
		{weightedParts.dir(t), 2, []string{"run.ranks_per_node=1", "train.eval_mode=full"}},
		{wideParts.dir(t), 4, []string{"run.ranks_per_node=1", "pipeline.depth=5"}},
	} {
		t.Run(fmt.Sprint(c.ranks, " ranks ", c.sets), func(t *testing.T) {
			got := trainedMPI(t, c.parts, c.ranks, append(c.sets, "exchange.sums=on")...)
			sameNumbers(t, got, trained(t, c.parts, c.ranks, c.sets...))
			if got.Sums == 0 {
				t.Error("no sums travelled")
			}
		})
	}
}

// A run may be resumed with sums if it began without them, and the other way round.
func TestSumsMayChangeOnResume(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	sets := []string{"run.ranks_per_node=1", "cache.policy=none"}
	want := trained(t, smallParts.dir(t), 2, sets...)
	for _, order := range [][2]string{{"on", "off"}, {"off", "on"}} {
		first, then := "exchange.sums="+order[0], "exchange.sums="+order[1]
		dir := newRunDir(t)
		halognn(t).must(t, append(trainArgs(t, smallParts.dir(t), dir, append(sets, first,
			"train.epochs=1")...), "--ranks-in-process", "2")...)
		r := halognn(t).must(t, "train", "--resume", dir, "--set", then, "--set", "train.epochs=2",
			"--ranks-in-process", "2")
		got := outcomeOf(t, dir, r)
		if got.WeightsDigest != want.WeightsDigest || got.LossDigest != want.LossDigest {
			t.Errorf("%v: loss and weights %s, %s; want %s, %s", order, got.LossDigest,
				got.WeightsDigest, want.LossDigest, want.WeightsDigest)
		}
	}
}

// A run may choose whether owners add rows. It says what it chose, why and by which figures, and
// trains the same numbers. It does not choose if owners cannot add rows.
func TestSumsAreChosen(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	for _, c := range []struct {
		perNode, why string
		sets         []string
	}{
		{"1", "of the bytes of a minibatch", []string{"cache.policy=lookahead"}},
		{"1", "of the bytes of a minibatch", []string{"model.kind=gcn", "cache.policy=auto"}},
		{"2", "every rank reads all rows in memory", nil},
		{"1", "of the bytes of a minibatch", []string{"topology.kind=partitioned"}},
		{"1", "model.kind gat: its input layer reads rows themselves",
			[]string{"model.kind=gat", "cache.policy=none"}},
		{"1", "parallel.mode split", []string{"parallel.mode=split"}},
	} {
		sets := append(c.sets, "run.ranks_per_node="+c.perNode)
		got := trained(t, smallParts.dir(t), 2, append(sets, "exchange.sums=auto")...)
		sameNumbers(t, got, trained(t, smallParts.dir(t), 2, sets...))
		chosen := got.SumsChoice
		switch {
		case chosen == nil || !strings.Contains(chosen.Why, c.why):
			t.Errorf("%v: %+v, want a choice because %q", c.sets, chosen, c.why)
		case (chosen.Sums == "on") != (got.Sums > 0):
			t.Errorf("%v: %+v, but %d sums travelled", c.sets, chosen, got.Sums)
		case chosen.RowBytes > 0 && (chosen.SumBytes <= 0 || chosen.SumBytes >= chosen.RowBytes ||
			chosen.Cost <= 0 || (chosen.Sums == "on") != (chosen.Saved > chosen.Cost)):
			t.Errorf("%v: %+v", c.sets, chosen)
		}
	}
}

// A GPU reads sums like rows. But sums that come among float16 and int8 rows are added by the host.
func TestSumsOnGPU(t *testing.T) {
	unlessShort(t)
	env := emulatedGPU(t)
	for _, c := range []struct {
		parts string
		sets  []string
	}{
		{smallParts.dir(t), []string{"cache.policy=vip", "compute.gpu_rows=0.5"}},
		{weightedParts.dir(t), []string{"model.kind=gcn", "compute.gpu_reads=mapped"}},
		{smallParts.dir(t), []string{"model.aggregation=max", "compute.gpu_rows=0"}},
		{wideParts.dir(t), []string{"sample.fanouts=20,10"}},
		{byteParts.dir(t), []string{"sample.fanouts=20,10", "cache.policy=vip"}},
	} {
		sets := append([]string{"run.ranks_per_node=1", "compute.device=cuda", "train.epochs=1"},
			c.sets...)
		run := func(sums string) *outcome {
			dir := newRunDir(t)
			args := append(trainArgs(t, c.parts, dir, append(sets, "exchange.sums="+sums)...),
				"--ranks-in-process", "2")
			r := start(t, env, halognn(t).path, args...).wait(t)
			if r.code != 0 {
				t.Fatal(r)
			}
			return outcomeOf(t, dir, r)
		}
		rows, sums := run("off"), run("on")
		sameNumbers(t, sums, rows)
		fewer(t, sums, rows, true)
	}
}

// simulate counts the rows and sums that the ranks of a training run fetch, vector for vector and
// byte for byte.
func TestSimulatedSumsAreThoseOfTraining(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	for _, c := range []struct {
		parts, model string
	}{
		{smallParts.dir(t), "sage"}, {wideParts.dir(t), "gcn"}, {byteParts.dir(t), "sage"},
	} {
		dir := filepath.Join(t.TempDir(), "out")
		policies := []string{"none", "vip", "oracle", "lookahead", "sieve"}
		halognn(t).must(t, "simulate", "--parts", c.parts, "--ranks", "4", "--set",
			"sample.fanouts=5,3", "--set", "model.layers=2", "--set", "sample.batch=96", "--epochs",
			"2",
			"--set", "train.seed=7", "--policies", strings.Join(policies,
				","), "--alphas", "0.2", "--set",
			"exchange.sums=on", "--set", "model.kind="+c.model, "--out", dir)
		lines, err := csv.NewReader(bytes.NewReader(read(t,
			filepath.Join(dir, "simulate.csv")))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		column := func(line []string, name string) float64 {
			x, err := strconv.ParseFloat(line[slices.Index(lines[0], name)], 64)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		for i, policy := range policies {
			run := trained(t, c.parts, 4, "run.ranks_per_node=1", "train.seed=7",
				"train.eval_every=0",
				"cache.policy="+policy, "cache.alpha=0.2", "exchange.sums=on",
				"model.kind="+c.model)
			var all trace.Counters
			bytes := int64(0)
			for _, e := range run.epochs {
				all.Add(trace.Counters{Remote: e.Remote, Sums: e.Sums, Summed: e.Summed,
					Cached: e.Cached, IDBytes: e.IDBytes})
				bytes += e.RemoteBytes
			}
			hit, buffer := all.HitRates()
			want := [6]float64{float64(all.Remote + all.Sums), float64(all.Sums), float64(bytes),
				float64(all.IDBytes), hit, buffer}
			var got [6]float64
			for k, name := range []string{"rows", "sum_vectors", "vector_bytes", "id_bytes",
				"hit_rate",
				"buffer_hit_rate"} {
				got[k] = column(lines[1+i], name)
			}
			if got != want || all.Sums == 0 {
				t.Errorf("%s, %s: rows and sums, sums, bytes, of ids, hit rates: %v "+
					"simulated, %v in "+
					"training", c.model, policy, got, want)
			}
		}
	}
}
