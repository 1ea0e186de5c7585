package infer

import (
	"context"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// evalSalt is combined with the seed of the run, so that evaluations draw other random numbers than
// training.
const evalSalt = 0x9E3779B97F4A7C15

// evalKey returns the key of the random draws of an evaluation minibatch. Its field Stream is the
// part and not the rank, so results do not depend on the number of ranks.
func (s Passes) evalKey(epoch, part, chunk int) sample.Key {
	return sample.Key{Seed: s.Job.Seed ^ evalSalt, Epoch: epoch, Step: chunk, Stream: part}
}

// Sampled runs minibatches of given vertices of this rank's parts through the training pipeline,
// forward only. It calls the function `visit` with every minibatch and its logits, which are in
// host memory and valid during the call. With a look-ahead cache it uses a temporary pipeline,
// because minibatches of the next epoch occupy the slots of the training pipeline. The random draws
// of a minibatch depend on its part and on its number within the part, and it is as large as a
// minibatch of training. So with the same streams the draws are the same on any number of ranks.
// Collective.
func (s Passes) Sampled(ctx context.Context, epoch int, seeds func(part int) []graph.VertexID,
	visit func(m *parallel.Minibatch, logits compute.Matrix) error,
) error {
	items, admit, err := s.sampledItems(epoch, seeds)
	if err != nil {
		return err
	}
	var host []float32
	defer func() { mem.Free(host) }()
	judge := func(_ int, m *parallel.Minibatch) error {
		logits, err := s.Strategy.Forward(m)
		if err != nil {
			return err
		}
		host = mem.Grow(host, len(logits.Data))
		s.Device.Download(host, logits.Data)
		s.Model.Undo(host[:len(logits.Data)])
		return visit(m, compute.Matrix{Rows: logits.Rows, Cols: logits.Cols, Data: host})
	}
	if s.Pipe.Ahead() == 0 {
		return s.Pipe.Run(ctx, items, admit, judge)
	}
	pipe, err := s.NewPipe(s.Strategy, 0)
	if err != nil {
		return err
	}
	defer pipe.Close()
	return pipe.Run(ctx, items, admit, judge)
}

// sampledItems returns the number of minibatches of the given vertices, and a function that sets
// the seeds of minibatch i. Collective.
func (s Passes) sampledItems(epoch int, seeds func(part int) []graph.VertexID) (
	items int, admit func(int, *parallel.Minibatch), err error,
) {
	if s.Job.Mode.Sharing != sample.Alone && s.Job.Share(s.Comm.Rank()).Size > 1 {
		items, admit = s.sharedItems(epoch, seeds)
		return items, admit, nil
	}
	most := 0
	for p := s.First; p < s.Last; p++ {
		most = max(most, len(seeds(p)))
	}
	if most, err = comm.AgreeMax(s.Comm, most); err != nil {
		return 0, nil, err
	}
	size := s.Job.MaxSeeds()
	chunks := (most + size - 1) / size
	var all []graph.VertexID // seeds of the current part, kept because making them takes time
	return (s.Last - s.First) * chunks, func(i int, m *parallel.Minibatch) {
		part, chunk := s.First+i/chunks, i%chunks
		if chunk == 0 {
			all = seeds(part)
		}
		m.Key, m.Train = s.evalKey(epoch, part, chunk), false
		m.SetSeeds(all[min(len(all), chunk*size):min(len(all), (chunk+1)*size)])
		m.GlobalSeeds = len(m.Seeds)
	}, nil
}

// sharedItems does what sampledItems does, for minibatches that ranks share. A group of ranks
// shares a minibatch. It has vertices of all parts of the group, mixed as evenly as in training, so
// that no rank waits for another that has all the seeds. All groups run as many minibatches as the
// group with the most vertices.
func (s Passes) sharedItems(epoch int, seeds func(part int) []graph.VertexID) (
	items int, admit func(int, *parallel.Minibatch),
) {
	share, size := s.Job.Share(s.Comm.Rank()), s.Job.MaxSeeds()
	var mine []graph.VertexID
	for g := range s.Comm.Size() / share.Size {
		first, _ := s.Job.Parts(g * share.Size)
		_, last := s.Job.Parts((g+1)*share.Size - 1)
		var all []graph.VertexID
		for p := first; p < last; p++ {
			all = append(all, seeds(p)...)
		}
		items = max(items, (len(all)+size-1)/size)
		if g == share.Group {
			mine = all
		}
	}
	return items, func(i int, m *parallel.Minibatch) {
		m.Key, m.Train = s.evalKey(epoch, share.Group, i), false
		m.Seeds = mem.Grow(m.Seeds, (len(mine)-i+items-1)/items)
		for k := range m.Seeds {
			m.Seeds[k] = mine[i+k*items]
		}
		m.GlobalSeeds = len(m.Seeds)
	}
}
