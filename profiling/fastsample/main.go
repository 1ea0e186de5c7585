// Command fastsample compares the two samplers of sample.kernel on the graph of a PARTS directory,
// without training: the upper panel of FastSample's Figure 5.
//
//	go run ./profiling/fastsample [-batches 1024,...] [-fanouts '15,10,5 5,5,5'] [-pairs N] PARTS
//
// Both samplers draw the same minibatches in turn, on one thread, and are timed by its CPU time, so
// that other programs disturb the ratio little. Seeds are training vertices in a random order.
// Blocks are all that is made: the transposes, which backward reads, cost both samplers the same.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"halognn/src/graph"
	"halognn/src/sample"
	"halognn/src/shard"
	"halognn/src/timing"
)

// comparison is what is asked for.
type comparison struct {
	parts   string
	batches []int
	fanouts [][]int
	pairs   int // minibatches drawn by each sampler, of every batch size and fanouts
}

// setting is one batch size with one list of fanouts.
type setting struct {
	batch   int
	fanouts []int
}

// result has the medians over minibatches.
type result struct {
	edges      float64
	coo, fused float64    // million edges a second
	ratio      float64    // time of coo over that of fused, of the same minibatch
	spread     [2]float64 // least and largest ratio
}

func main() {
	c := comparison{}
	batches := flag.String("batches", "1024,2048,4096,6144,8192,10240", "batch sizes")
	fanouts := flag.String("fanouts", "15,10,5 10,10,10 5,5,5 20,15,10", "lists of fanouts")
	flag.IntVar(&c.pairs, "pairs", 8, "minibatches of each batch size and list of fanouts")
	flag.Parse()
	err := c.parse(flag.Args(), *batches, *fanouts)
	if err == nil {
		err = c.run(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fastsample:", err)
		os.Exit(1)
	}
}

func (c *comparison) parse(args []string, batches, fanouts string) (err error) {
	if len(args) != 1 || c.pairs < 1 {
		return errors.New("give one PARTS directory, and at least one pair")
	}
	c.parts = args[0]
	if c.batches, err = numbers(batches); err != nil {
		return err
	}
	for _, list := range strings.Fields(fanouts) {
		f, err := numbers(list)
		if err != nil {
			return err
		}
		c.fanouts = append(c.fanouts, f)
	}
	return nil
}

// numbers reads positive numbers between commas.
func numbers(list string) (all []int, err error) {
	for _, word := range strings.Split(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q in %q is no positive number", word, list)
		}
		all = append(all, n)
	}
	return all, nil
}

func (c *comparison) run(w io.Writer) error {
	s, err := shard.Open(c.parts, shard.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	var seeds []graph.VertexID
	for part := range s.Parts {
		seeds = append(seeds, s.Train(part)...)
	}
	random := rand.New(rand.NewPCG(1, 2))
	random.Shuffle(len(seeds), func(i, j int) { seeds[i], seeds[j] = seeds[j], seeds[i] })
	fmt.Fprintln(w, "| fanouts | batch | edges a minibatch | coo, M edges/s | fused, M edges/s | "+
		"coo / fused, time | least, most |\n|---|--:|--:|--:|--:|--:|--:|")
	for _, f := range c.fanouts {
		for _, batch := range c.batches {
			r, err := compare(s.Topology(), seeds, setting{batch, f}, c.pairs)
			if err != nil {
				return fmt.Errorf("batch %d, fanouts %v: %w", batch, f, err)
			}
			fmt.Fprintf(w, "| %s | %d | %.0f | %.1f | %.1f | %.2f | %.2f, %.2f |\n",
				strings.Trim(strings.ReplaceAll(fmt.Sprint(f), " ", ","), "[]"), batch, r.edges, r.coo,
				r.fused, r.ratio, r.spread[0], r.spread[1])
		}
	}
	return nil
}

// compare draws pairs of minibatches.
func compare(t *sample.Topology, seeds []graph.VertexID, c setting, pairs int) (r result, err error) {
	if c.batch > len(seeds) {
		return r, fmt.Errorf("the graph has %d training vertices only", len(seeds))
	}
	runtime.LockOSThread() // whose time is measured
	defer runtime.UnlockOSThread()
	var samplers [2]sample.Sampler
	for i, kernel := range []sample.Kernel{sample.KernelCOO, sample.KernelFused} {
		if samplers[i], err = sample.New(t, sample.Options{Spec: sample.Spec{Fanouts: c.fanouts},
			MaxSeeds: c.batch, Kernel: kernel, ForwardOnly: true}); err != nil {
			return r, err
		}
		defer samplers[i].Free()
	}
	var drawn [2]sample.Minibatch
	defer drawn[0].Free()
	defer drawn[1].Free()
	var edges, ratios []float64
	var rates [2][]float64
	taken := make([]graph.VertexID, c.batch)
	for step := range pairs + 2 { // the first two make the arrays grow
		for i := range taken {
			taken[i] = seeds[(step*c.batch+i)%len(seeds)]
		}
		var took [2]float64
		for turn := range samplers {
			i := (turn + step) % 2 // each is first as often: it finds the graph colder
			begin := timing.Thread()
			if err := samplers[i].Sample(&drawn[i], taken, sample.Key{Step: step}); err != nil {
				return r, err
			}
			took[i] = (timing.Thread() - begin).Seconds()
		}
		if drawn[0].Digest() != drawn[1].Digest() {
			return r, errors.New("the samplers draw different minibatches")
		}
		if step < 2 {
			continue
		}
		n := float64(drawn[0].NumEdges())
		edges, ratios = append(edges, n), append(ratios, took[0]/took[1])
		for i := range rates {
			rates[i] = append(rates[i], n/took[i]/1e6)
		}
	}
	return result{edges: timing.Median(edges), coo: timing.Median(rates[0]),
		fused: timing.Median(rates[1]), ratio: timing.Median(ratios),
		spread: [2]float64{slices.Min(ratios), slices.Max(ratios)}}, nil
}
