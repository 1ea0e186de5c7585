// Command sampling times the sampler on the graph of a PARTS directory, without training.
//
//	go run ./profiling/lab/sampling [-batches 1024,...] [-fanouts '15,10,5 5,5,5'] [-count N] PARTS
//
// It draws on one thread and measures its CPU time, so that other programs disturb it little. Seeds
// are training vertices in a random order. It makes only blocks, not the transposes, which the
// backward pass reads.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"

	"halognn/src/base/timing"
	"halognn/src/data/shard"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// job has the command line's requests.
type job struct {
	parts   string
	batches []int
	fanouts [][]int
	count   int // number of minibatches for every batch size and fanouts
}

func main() {
	c := job{}
	batches := flag.String("batches", "1024,2048,4096,6144,8192,10240", "batch sizes")
	fanouts := flag.String("fanouts", "15,10,5 10,10,10 5,5,5 20,15,10", "lists of fanouts")
	flag.IntVar(&c.count, "count", 8, "minibatches of each batch size and list of fanouts")
	flag.Parse()
	err := c.parse(flag.Args(), *batches, *fanouts)
	if err == nil {
		err = c.run(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sampling:", err)
		os.Exit(1)
	}
}

func (c *job) parse(args []string, batches, fanouts string) (err error) {
	if len(args) != 1 || c.count < 1 {
		return errors.New("give one PARTS directory, and at least one minibatch")
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

func (c *job) run(w io.Writer) error {
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
	fmt.Fprintln(w, "| fanouts | batch | edges a minibatch | M edges/s |\n|---|--:|--:|--:|")
	for _, f := range c.fanouts {
		for _, batch := range c.batches {
			edges, rate, err := measure(s.Topology(), seeds, batch, f, c.count)
			if err != nil {
				return fmt.Errorf("batch %d, fanouts %v: %w", batch, f, err)
			}
			fmt.Fprintf(w, "| %s | %d | %.0f | %.1f |\n",
				strings.Trim(strings.ReplaceAll(fmt.Sprint(f), " ", ","), "[]"), batch, edges, rate)
		}
	}
	return nil
}

// measure draws minibatches, and returns the medians of their edges and of million edges a second.
func measure(t *sample.Topology, seeds []graph.VertexID, batch int, fanouts []int,
	count int) (edges, rate float64, err error) {
	if batch > len(seeds) {
		return 0, 0, fmt.Errorf("the graph has %d training vertices only", len(seeds))
	}
	runtime.LockOSThread() // whose CPU time is measured
	defer runtime.UnlockOSThread()
	s, err := sample.New(t, sample.Options{Spec: sample.Spec{Fanouts: fanouts}, MaxSeeds: batch,
		ForwardOnly: true})
	if err != nil {
		return 0, 0, err
	}
	defer s.Free()
	var drawn sample.Minibatch
	defer drawn.Free()
	var sizes, rates []float64
	taken := make([]graph.VertexID, batch)
	for step := range count + 2 { // the first two only grow the arrays
		for i := range taken {
			taken[i] = seeds[(step*batch+i)%len(seeds)]
		}
		begin := timing.Thread()
		if err := s.Sample(&drawn, taken, sample.Key{Step: step}); err != nil {
			return 0, 0, err
		}
		if n := float64(drawn.NumEdges()); step >= 2 {
			sizes = append(sizes, n)
			rates = append(rates, n/(timing.Thread()-begin).Seconds()/1e6)
		}
	}
	return timing.Median(sizes), timing.Median(rates), nil
}
