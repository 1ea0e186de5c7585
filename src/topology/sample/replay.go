package sample

import (
	"cmp"
	"fmt"
	"iter"
	"time"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Reader describes which minibatches one reader of rows, a rank or a stream, trains in a run. At
// every step it trains one minibatch of each of the Count streams from First on. These are its
// items, numbered from 0 in training order. Numbers beyond the items of an epoch continue in later
// epochs.
type Reader struct {
	Streams      *Streams // the seed order
	First, Count int      // range of streams
	Seed         uint64   // seed of the run
	Favour       float64  // Key.Favour
}

// Items returns the number of minibatches of an epoch.
func (r *Reader) Items() int { return r.Streams.Steps() * r.Count }

// Key returns the key of an item's random draws in an epoch.
func (r *Reader) Key(epoch, item int) Key {
	step, steps := item/r.Count, r.Streams.Steps()
	return Key{Seed: r.Seed, Epoch: epoch + step/steps, Step: step % steps,
		Stream: r.First + item%r.Count, Favour: r.Favour}
}

// Minibatches yields n items of an epoch, beginning with the item of index first. It samples each
// item when it is requested, over the previous one. An error ends the sequence and is stored in
// fault. If o.MaxSeeds is 0, the limit is the largest number of seeds of a minibatch in training.
func (r *Reader) Minibatches(t *Topology, o Options, epoch, first, n int, fault *error,
) iter.Seq2[Key, *Minibatch] {
	return func(yield func(Key, *Minibatch) bool) {
		p, err := r.Replay(t, o)
		if err != nil {
			*fault = err
			return
		}
		defer p.Free()
		for i := first; i < first+n; i++ {
			key, err := p.SampleItem(epoch, i)
			if err != nil {
				*fault = fmt.Errorf("epoch %d, step %d: %w", key.Epoch, key.Step, err)
				return
			}
			if !yield(key, &p.Minibatch) {
				return
			}
		}
	}
}

// Replay samples minibatches of a reader without training them. It uses the keys of training, so
// the draws are the same.
type Replay struct {
	Of *Reader // the reader whose minibatches it samples; may be changed between calls
	// nil if the model reads no neighbours, so that minibatches are just seeds
	Sampler   Sampler
	Minibatch Minibatch     // the last minibatch
	Took      time.Duration // time to draw the last minibatch
	// Seeds returns the seeds of a minibatch, in the memory of dst if they fit. If it is nil, they
	// are the seeds of training.
	Seeds func(k Key, dst []graph.VertexID) []graph.VertexID

	seeds []graph.VertexID
}

// Replay opens a replay with a sampler that has the options o. If o.MaxSeeds is 0, the limit is the
// largest number of seeds of a minibatch in training. If o has no hops, as for models that read no
// neighbours, minibatches are just their seeds.
func (r *Reader) Replay(t *Topology, o Options) (*Replay, error) {
	if o.Hops() == 0 {
		return &Replay{Of: r}, nil
	}
	return r.drawn(t, o)
}

// drawn opens a replay of minibatches with hops.
func (r *Reader) drawn(t *Topology, o Options) (*Replay, error) {
	p := &Replay{Of: r}
	o.MaxSeeds = cmp.Or(o.MaxSeeds, r.Streams.MaxPiece())
	var err error
	p.Sampler, err = New(t, o)
	return p, err
}

// SampleItem samples the minibatch with the index item in the order of an epoch. It returns the key
// of the minibatch, even if it also returns an error.
func (p *Replay) SampleItem(epoch, item int) (Key, error) {
	key := p.Of.Key(epoch, item)
	if p.Seeds == nil {
		p.seeds = p.Of.Streams.Piece(key.Epoch, key.Step, key.Stream, p.seeds)
	} else {
		p.seeds = p.Seeds(key, p.seeds)
	}
	begin := time.Now()
	defer func() { p.Took = time.Since(begin) }()
	if p.Sampler == nil {
		p.Minibatch.Frontier = mem.Grow(p.Minibatch.Frontier, len(p.seeds))
		copy(p.Minibatch.Frontier, p.seeds)
		return key, nil
	}
	return key, p.Sampler.Sample(&p.Minibatch, p.seeds, key)
}

// Bytes returns the memory of the sampler and the minibatch.
func (p *Replay) Bytes() int64 {
	n := p.Minibatch.Bytes()
	if p.Sampler != nil {
		n += p.Sampler.Bytes()
	}
	return n
}

// Free frees the memory.
func (p *Replay) Free() {
	p.Minibatch.Free()
	if p.Sampler != nil {
		p.Sampler.Free()
	}
}
