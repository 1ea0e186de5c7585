package main

import (
	"encoding/json"
	"errors"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
)

// team are the ranks that write parts together: rank 0 leads, the others follow.
type team struct{ comm.Comm }

func (t team) Gather(mine []byte) ([][]byte, error) { return comm.Allgatherv(t.Comm, mine) }
func (t team) Agree(mine error) error               { return comm.Agree(t.Comm, mine) }

// lead writes parts together with the ranks that follow.
func (t team) lead(dir string, d *dataset.Dataset, l shard.Layout) error {
	text, err := json.Marshal(told{dir, d.Identity(), l.Offsets, l.Origin})
	if err := t.Agree(err); err != nil {
		return err
	}
	if _, err := t.Gather(text); err != nil {
		return err
	}
	if err := t.Agree(nil); err != nil { // wait until every rank has opened the dataset
		return err
	}
	if err := t.spread(l.NewID); err != nil {
		return err
	}
	return shard.Write(dir, d, l, t)
}

// told is what rank 0 sends to the other ranks besides the new ids.
type told struct {
	Dir, Identity string
	Offsets       []int64
	Origin        shard.Origin
}

// follow waits until rank 0 has cut the dataset, then writes with it.
func (t team) follow(data string) error {
	if err := t.Agree(nil); err != nil { // rank 0 failed, so there is nothing to write
		return err
	}
	texts, err := t.Gather(nil)
	if err != nil {
		return err
	}
	var of told
	err = json.Unmarshal(texts[0], &of)
	d, fault := dataset.Open(data)
	if fault == nil {
		defer d.Close()
		if d.Identity() != of.Identity {
			fault = errors.New("--data " + data + " is another dataset than on rank 0; give all " +
				"ranks the same one")
		}
	}
	l := shard.Layout{Offsets: of.Offsets, Origin: of.Origin}
	if fault == nil {
		fault = mem.Guard(func() error {
			l.NewID = mem.Make[graph.VertexID](int(d.Meta.Vertices))
			return nil
		})
	}
	defer func() { mem.Free(l.NewID) }()
	if err := t.Agree(dataError(errors.Join(err, fault))); err != nil {
		return err
	}
	if err := t.spread(l.NewID); err != nil {
		return err
	}
	return shard.Write(of.Dir, d, l, t)
}

// spread sends the new ids from rank 0 to all ranks, in pieces.
func (t team) spread(ids []graph.VertexID) error {
	const most = 1 << 24
	var piece []graph.VertexID
	for t.Size() > 1 && len(ids) > 0 {
		n := min(len(ids), most)
		rows, mine, all := make([]int, t.Size()), []graph.VertexID(nil), ids[:n]
		if rows[0] = n; t.Rank() == 0 {
			if piece == nil {
				piece = make([]graph.VertexID, n)
			}
			mine, all = ids[:n], piece[:n]
		}
		if err := t.StartAllgatherv(mem.Bytes(mine), mem.Bytes(all), rows, 4).Wait(); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}
