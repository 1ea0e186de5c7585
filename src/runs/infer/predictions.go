package infer

import (
	"bufio"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
)

// write gathers predictions and embeddings and lets rank 0 write them. Collective.
func (s Passes) write(ctx context.Context, p *predictions, m *Model, what Request) error {
	if what.Path != "" {
		err := s.gather(p.chosen, p.own, p.rowBytes, func(all []byte) error {
			if strings.EqualFold(filepath.Ext(what.Path), ".csv") {
				return s.writeTable(ctx, p, m, what, all)
			}
			return p.writeArray(ctx, m, what.Path, all)
		})
		if err != nil {
			return err
		}
	}
	if what.Embeddings == "" {
		return nil
	}
	return s.gather(p.chosen, mem.Bytes(p.hidden), 4*p.hiddenCols, func(all []byte) error {
		return writeRows(ctx, "embeddings", what.Embeddings, "<f4",
			[]int{p.chosen.n, p.hiddenCols}, all)
	})
}

// gatherBytes is about the number of bytes that a rank sends in one round.
const gatherBytes = 16 << 20

// gather brings the rows of all chosen vertices to rank 0 in the order of the output, and lets it
// write them. It works in rounds, so that buffers stay small. Collective.
func (s Passes) gather(
	chosen *chosen, own []byte, rowBytes int, write func(all []byte) error,
) error {
	offsets, ranks, me := s.Shards.Meta.Offsets, s.Comm.Size(), s.Comm.Rank()
	bounds := make([]int, ranks+1)
	for r := range bounds {
		bounds[r] = chosen.below(offsets[r*(s.Last-s.First)])
	}
	each, rounds := max(1, gatherBytes/rowBytes), 0
	for r := range ranks {
		rounds = max(rounds, (bounds[r+1]-bounds[r]+each-1)/each)
	}
	var all, recv []byte
	if me == 0 {
		all = mem.Make[byte](chosen.n * rowBytes)
		defer func() { mem.Free(all); mem.Free(recv) }()
	}
	piece := func(r, round int) (lo, hi int) {
		return min(bounds[r]+round*each, bounds[r+1]), min(bounds[r]+(round+1)*each, bounds[r+1])
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
		recv = mem.Grow(recv, total*rowBytes)
		lo, hi := piece(me, round)
		send[0] = hi - lo
		mine := own[(lo-bounds[me])*rowBytes : (hi-bounds[me])*rowBytes]
		if err := s.Comm.StartAlltoallv(mine, recv, send, receive, rowBytes).Wait(); err != nil {
			return err
		}
		at := 0
		for r := 0; me == 0 && r < ranks; r++ {
			lo, hi := piece(r, round)
			for i := lo; i < hi; i++ {
				copy(all[chosen.row(i, s.Topology.Original)*rowBytes:], recv[at:at+rowBytes])
				at += rowBytes
			}
		}
	}
	var err error
	if me == 0 {
		err = write(all)
	}
	return comm.Agree(s.Comm, err)
}

// writeArray writes the predictions as a NumPy array. It writes a class as the number that the
// class has in the imported dataset.
func (p *predictions) writeArray(ctx context.Context, m *Model, path string, all []byte) error {
	layout := npy.Info{DType: "<f4", Shape: []int{p.chosen.n, p.classes}}
	if p.form == FormClasses {
		layout = p.task.Layout(p.chosen.n, p.classes)
	}
	if numbers := m.classNumbers(); p.form == FormClasses && p.task.Class != nil && numbers != nil {
		for v := range p.chosen.n {
			row := all[v*p.rowBytes:][:p.rowBytes]
			if c := p.task.Class(row); c >= 0 {
				task.PutClass(row, numbers[c])
			}
		}
	}
	return writeRows(ctx, "predictions", path, layout.DType, layout.Shape, all)
}

// writeBytes is the number of bytes written between two checks of the context.
const writeBytes = 16 << 20

func writeRows(ctx context.Context, what, path, dtype string, shape []int, all []byte) error {
	w, err := npy.Create(path, dtype, shape...)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for piece := range slices.Chunk(all, writeBytes) {
		if _, err = w.Write(piece); err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			w.Abort()
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return w.Close()
}

// writeTable writes the predictions as a table. It has the source id, the label and, if
// probabilities or logits are requested, a column for each class. If the label itself has a column
// for each class, the columns of probabilities or logits replace the label.
func (s Passes) writeTable(
	ctx context.Context, p *predictions, m *Model, what Request, all []byte,
) error {
	err := writeFile(what.Path, func(to io.Writer) error {
		return s.formatTable(ctx, to, p, m, what, all)
	})
	if err != nil {
		return fmt.Errorf("predictions: %w", err)
	}
	return nil
}

// writeFile writes a temporary file and renames it to path when it is complete.
func writeFile(path string, write func(to io.Writer) error) error {
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)),
		renameio.WithPermissions(0o666))
	if err != nil {
		return err
	}
	defer f.Cleanup() // does nothing once the file has its name
	buffered := bufio.NewWriterSize(f, 1<<20)
	if err := write(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

func (s Passes) formatTable(
	ctx context.Context, to io.Writer, p *predictions, m *Model, what Request, all []byte,
) error {
	ids, err := s.Shards.OpenSourceIDs()
	if err != nil {
		return err
	}
	defer ids.Close()
	w := csv.NewWriter(to)
	line := []string{"id"}
	if !p.task.Wide {
		line = append(line, p.task.Column)
	}
	if p.task.Wide || p.form != FormClasses {
		for c := range p.classes {
			line = append(line, m.columnName(c))
		}
	}
	if err := w.Write(line); err != nil {
		return err
	}
	for v := range p.chosen.n {
		if v%(1<<16) == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		id := ""
		if what.Vertices != nil {
			id = what.Vertices[v]
		} else {
			id = ids.Text(p.chosen.first + v)
		}
		line = p.cells(append(line[:0], id), m, all[v*p.rowBytes:(v+1)*p.rowBytes])
		if err := w.Write(line); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// cells appends the cells of a row, without its id.
func (p *predictions) cells(line []string, m *Model, row []byte) []string {
	if p.form == FormClasses {
		return p.task.Cells(line, row, m.className)
	}
	z := npy.View[float32](row)
	if !p.task.Wide {
		label := make([]byte, p.task.LabelBytes(p.classes))
		p.task.Predict(label, z)
		line = p.task.Cells(line, label, m.className)
	}
	for _, x := range z {
		line = append(line, strconv.FormatFloat(float64(x), 'g', -1, 32))
	}
	return line
}
