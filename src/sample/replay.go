package sample

import (
	"cmp"
	"fmt"
	"iter"
	"time"

	"halognn/src/graph"
	"halognn/src/mem"
)

// Reader says which minibatches of a run one reader of rows trains, a rank or a stream: in every
// step one of each of Count streams from First on. They are its items, numbered from 0 in the order
// of training; items beyond an epoch are those of later epochs.
type Reader struct {
	Streams      *Streams // the seed order
	First, Count int      // streams
	Seed         uint64   // of the run
	Favour       float64  // Key.Favour
}

// Items returns the minibatches of an epoch.
func (r *Reader) Items() int { return r.Streams.Steps() * r.Count }

// Key names the random draws of an item of an epoch.
func (r *Reader) Key(epoch, item int) Key {
	step, steps := item/r.Count, r.Streams.Steps()
	return Key{Seed: r.Seed, Epoch: epoch + step/steps, Step: step % steps,
		Stream: r.First + item%r.Count, Favour: r.Favour}
}

// Minibatches yields n items from the given one of an epoch on. Each is sampled when it is
// requested, and overwrites the one before. An error ends the sequence and is stored in fault.
// Options.MaxSeeds is set.
func (r *Reader) Minibatches(t *Topology, o Options, epoch, from, n int, fault *error,
) iter.Seq2[Key, *Minibatch] {
	return func(yield func(Key, *Minibatch) bool) {
		p, err := r.Replay(t, o)
		if err != nil {
			*fault = err
			return
		}
		defer p.Free()
		for i := from; i < from+n; i++ {
			key, err := p.At(epoch, i)
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

// Replay samples minibatches of a reader that it does not train, key for key as training does.
type Replay struct {
	Of        *Reader       // whose minibatches; another may follow
	Sampler   Sampler       // nil: the reader's model reads no neighbours, and minibatches are their seeds
	Minibatch Minibatch     // the last one
	Took      time.Duration // to draw it
	// the seeds of a minibatch, in the memory of dst where they fit; nil: those of training
	Seeds func(k Key, dst []graph.VertexID) []graph.VertexID

	seeds []graph.VertexID
}

// Replay opens a replay by the sampler of o, whose MaxSeeds, if 0, are those of training. Without hops
// minibatches are their seeds, as those of models that read no neighbours.
func (r *Reader) Replay(t *Topology, o Options) (*Replay, error) {
	if o.Hops() == 0 {
		return &Replay{Of: r}, nil
	}
	return r.drawn(t, o)
}

// drawn opens a replay whose minibatches have hops.
func (r *Reader) drawn(t *Topology, o Options) (*Replay, error) {
	p := &Replay{Of: r}
	o.MaxSeeds = cmp.Or(o.MaxSeeds, r.Streams.MaxPiece())
	var err error
	p.Sampler, err = New(t, o)
	return p, err
}

// At samples an item of an epoch and returns its key, with an error too.
func (p *Replay) At(epoch, item int) (Key, error) {
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
