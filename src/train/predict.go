package train

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/npy"
	"halognn/src/parallel"
)

// Inference says how vertices are predicted, and where predictions are written.
type Inference struct {
	Full   bool   // with all neighbours, layer by layer; otherwise minibatches are sampled, as for validation
	Logits bool   // write the logits, float32 [N, C], instead of classes
	Path   string // of the NumPy file
}

// Infer predicts every vertex with a trained model and lets rank 0 write the predictions, in original ids: the most likely
// class, int32 [N]; for several labels a vertex uint8 [N, C] of 0 and 1. Collective. Rank 0 holds the predictions of all vertices.
func Infer(ctx context.Context, env Env, o Options, weights []nn.Tensor, what Inference) error {
	var err error
	if env.Comm.Rank() == 0 {
		err = writable(what.Path)
	}
	if err := comm.Agree(env.Comm, err); err != nil {
		return err
	}
	s, err := openForward(env, o)
	if err != nil {
		return err
	}
	if err := s.infer(ctx, weights, what); err != nil {
		return s.endedBy(err)
	}
	return s.close()
}

func (s *session) infer(ctx context.Context, weights []nn.Tensor, what Inference) error {
	err := comm.Agree(s.Comm, s.model.Params.SetTensors(s.model.Params.Values, weights))
	if err != nil {
		return err
	}
	p := s.newPredictions(what.Logits)
	defer mem.Free(p.own)
	if what.Full {
		err = s.predictFull(ctx, p)
	} else {
		err = s.predictSampled(ctx, p)
	}
	if err != nil {
		return err
	}
	undefined, err := comm.AgreeSum(s.Comm, p.undefined)
	if err != nil {
		return err
	}
	if undefined > 0 {
		return comm.AgreedOn(s.Comm, fmt.Errorf("the predictions for %d vertices are not finite: %w; check the features of these vertices and the model's weights, which --logits shows", undefined, ErrDiverged))
	}
	return s.gather(ctx, p, what.Path)
}

// predictions holds the predictions of the own vertices, as the bytes of the file.
type predictions struct {
	classes  int // of a row
	rowBytes int
	multi    bool
	logits   bool
	own      []byte // [own vertices, rowBytes]

	undefined int // own vertices with a logit that is not finite; not counted if logits are written
}

func (s *session) newPredictions(logits bool) *predictions {
	p := &predictions{classes: s.Shards.Meta.Classes, rowBytes: 4, multi: s.metric == MicroF1, logits: logits}
	switch {
	case logits:
		p.rowBytes = 4 * p.classes
	case p.multi:
		p.rowBytes = p.classes
	}
	offsets := s.Shards.Meta.Offsets
	p.own = mem.Make[byte](int(offsets[s.last]-offsets[s.first]) * p.rowBytes)
	return p
}

// set sets the prediction of own row i from its logits z.
func (p *predictions) set(i int, z []float32) {
	row := p.own[i*p.rowBytes : (i+1)*p.rowBytes]
	if p.logits {
		copy(row, npy.Bytes(z))
		return
	}
	if !nn.Finite(z) { // they give no class
		p.undefined++
		return
	}
	if !p.multi {
		binary.LittleEndian.PutUint32(row, uint32(argmax(z)))
		return
	}
	for c, x := range z {
		row[c] = 0
		if x > 0 {
			row[c] = 1
		}
	}
}

func (s *session) predictFull(ctx context.Context, p *predictions) error {
	logits, err := s.inferAll(ctx)
	if err != nil {
		return err
	}
	defer mem.Free(logits)
	for i := range len(logits) / p.classes {
		p.set(i, logits[i*p.classes:(i+1)*p.classes])
	}
	return nil
}

func (s *session) predictSampled(ctx context.Context, p *predictions) error {
	offsets := s.Shards.Meta.Offsets
	vertices := func(part int) []graph.VertexID {
		ids := make([]graph.VertexID, offsets[part+1]-offsets[part])
		for i := range ids {
			ids[i] = graph.VertexID(offsets[part]) + graph.VertexID(i)
		}
		return ids
	}
	first := graph.VertexID(offsets[s.first])
	return s.sampled(ctx, 0, vertices, func(m *parallel.Minibatch, logits compute.Matrix) error {
		for i, v := range m.Scored {
			p.set(int(v-first), logits.Row(i))
		}
		return nil
	})
}

// gatherRows is how many predictions a rank sends in one round.
const gatherRows = 1 << 20

// gather sends all predictions to rank 0, in rounds so that little memory is in flight, and writes
// them. Collective.
func (s *session) gather(ctx context.Context, p *predictions, path string) error {
	offsets, ranks, me := s.Shards.Meta.Offsets, s.Comm.Size(), s.Comm.Rank()
	bound := func(r int) int { return int(offsets[r*(s.last-s.first)]) }
	rounds := 0
	for r := range ranks {
		rounds = max(rounds, (bound(r+1)-bound(r)+gatherRows-1)/gatherRows)
	}
	var all, recv []byte
	if me == 0 {
		all = mem.Make[byte](len(s.topology.Original) * p.rowBytes)
		defer func() { mem.Free(all); mem.Free(recv) }()
	}
	piece := func(r, round int) (lo, hi int) {
		return min(bound(r)+round*gatherRows, bound(r+1)), min(bound(r)+(round+1)*gatherRows, bound(r+1))
	}
	send, receive := make([]int, ranks), make([]int, ranks)
	for round := range rounds {
		total := 0
		for r := range ranks {
			lo, hi := piece(r, round)
			if me == 0 {
				receive[r], total = hi-lo, total+hi-lo
			}
		}
		recv = mem.Grow(recv, total*p.rowBytes)
		lo, hi := piece(me, round)
		send[0] = hi - lo
		mine := p.own[(lo-bound(me))*p.rowBytes : (hi-bound(me))*p.rowBytes]
		if err := s.Comm.StartAlltoallv(mine, recv, send, receive, p.rowBytes).Wait(); err != nil {
			return err
		}
		at := 0
		for r := 0; me == 0 && r < ranks; r++ {
			lo, hi := piece(r, round)
			for v := lo; v < hi; v++ {
				copy(all[int(s.topology.Original[v])*p.rowBytes:], recv[at:at+p.rowBytes])
				at += p.rowBytes
			}
		}
	}
	var err error
	if me == 0 {
		if err = p.write(ctx, path, all); ctx.Err() != nil && err != nil {
			return err // on this rank alone
		}
	}
	return comm.Agree(s.Comm, err)
}

// writable returns an error if predictions could not be written to path: better before they are
// computed than after. The file is renamed into place, which would replace a device file by it.
func writable(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("predictions: %s exists and is no regular file; choose another name", path)
	}
	probe, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-")
	if err != nil {
		return fmt.Errorf("predictions: %w; choose a directory that exists and may be written", err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// writeBytes is the number of bytes written between two checks of the context.
const writeBytes = 16 << 20

// write writes the predictions of all vertices as a NumPy array.
func (p *predictions) write(ctx context.Context, path string, all []byte) error {
	dtype, shape := "<i4", []int{len(all) / p.rowBytes}
	switch {
	case p.logits:
		dtype, shape = "<f4", append(shape, p.classes)
	case p.multi:
		dtype, shape = "|u1", append(shape, p.classes)
	}
	w, err := npy.Create(path, dtype, shape...)
	if err != nil {
		return fmt.Errorf("predictions: %w", err)
	}
	for piece := range slices.Chunk(all, writeBytes) {
		if _, err = w.Write(piece); err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			w.Abort()
			return fmt.Errorf("predictions: %w", err)
		}
	}
	return w.Close()
}
