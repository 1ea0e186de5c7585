package shard

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// linkView is one list of links. Entry k of offsets is the position in the list of the first link
// of part k.
type linkView struct {
	all     []graph.Link
	offsets []int
	labels  task.Labels
}

// listSize returns a pointer to the number of links or vertices that a part has in one list of the
// split. The index of that list is given (`split`).
func (s *SplitSizes) listSize(split int) *int {
	return [...]*int{&s.Train, &s.Valid, &s.Test}[split]
}

// linkLayout adds the files of links to the files that parts must have.
func (m *Meta) linkLayout(files map[string]npy.Info) {
	for split, name := range graph.SplitNames {
		n := 0
		for k := range m.Links {
			n += *m.Links[k].listSize(split)
		}
		if task.Stored(m.Task).Embeds {
			files[dataset.LinksFile(name)] = npy.Info{DType: "<i4", Shape: []int{n, 2}}
		}
		if of := task.Labelling(m.Task); of != nil {
			files[dataset.LinkLabelsFile(name)] = of.Layout(n, m.Classes)
		}
	}
}

// links writes the links of the dataset, ordered by the part of their target.
func (w *writer) links() error {
	if !task.Stored(w.meta.Task).Embeds {
		return nil
	}
	if err := os.Mkdir(filepath.Join(w.dir, "links"), 0o777); err != nil {
		return err
	}
	for split, list := range w.ds.Links.Lists() {
		name := dataset.LinksFile(graph.SplitNames[split])
		links := make([]graph.Link, len(*list))
		for i, l := range *list {
			if n := len(w.l.NewID); uint(l.Source) >= uint(n) || uint(l.Target) >= uint(n) {
				return fmt.Errorf("%s: the link from %d to %d: %w; run `halognn check` on the "+
					"dataset", name, l.Source, l.Target, graph.ErrVertexRange)
			}
			links[i] = graph.Link{Source: w.l.NewID[l.Source], Target: w.l.NewID[l.Target]}
			*w.meta.Links[w.partOf(links[i].Target)].listSize(split)++
		}
		labels := graph.SortLinks(links, w.ds.LinkLabels[split].Data, func(a, b graph.Link) int {
			return cmp.Or(cmp.Compare(w.partOf(a.Target), w.partOf(b.Target)),
				cmp.Compare(w.original[a.Target], w.original[b.Target]),
				cmp.Compare(w.original[a.Source], w.original[b.Source]))
		})
		if err := put(w, name, graph.LinkIDs(links), len(links), 2); err != nil {
			return err
		}
		if of := task.Labelling(w.meta.Task); of != nil {
			layout := of.Layout(len(links), w.meta.Classes)
			if err := w.writeFile(dataset.LinkLabelsFile(graph.SplitNames[split]), layout.DType,
				layout.Shape, func(out *npy.Writer) error {
					_, err := out.Write(labels)
					return err
				}); err != nil {
				return err
			}
		}
	}
	return nil
}

func mapLinks(s *Shards) error {
	if !task.Stored(s.Task).Embeds {
		return nil
	}
	if len(s.Links) != s.Parts {
		return fmt.Errorf("%w: there are %d parts, but %d parts have numbers of links; partition "+
			"again", ErrMismatch,
			s.Parts, len(s.Links))
	}
	var errs []error
	for split := range s.links {
		view, ids := &s.links[split], []graph.VertexID(nil)
		errs = append(errs, mapInto(s, dataset.LinksFile(graph.SplitNames[split]), &ids))
		view.all, view.offsets = graph.Links(ids), []int{0}
		for k := range s.Parts {
			view.offsets = append(view.offsets, view.offsets[k]+*s.Links[k].listSize(split))
		}
		if of := task.Labelling(s.Task); of != nil {
			name := dataset.LinkLabelsFile(graph.SplitNames[split])
			f, err := s.mapFile(name, 0, int64(s.Files[name].Shape[0]))
			if err == nil {
				view.labels, err = of.ReadLabels(f, s.Classes)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// LinksOf returns the links of all parts in one list (split is an index of graph.SplitNames), and
// the position of the first link of each part, [P+1]. There are no links unless links are the task.
func (s *Shards) LinksOf(split int) (all []graph.Link, offsets []int) {
	return s.links[split].all, s.links[split].offsets
}

// LinkLabels returns the labels of the links that LinksOf returns. It returns none if links have no
// labels.
func LinkLabels(s *Shards, split int) task.Labels { return s.links[split].labels }

// checkLinks reports a link that is outside its part or out of order. If the topology is sound, it
// also reports what graph.LinkSplit.Validate finds.
func checkLinks(s *Shards, sound bool) error {
	if !task.Stored(s.Task).Embeds || !sound {
		return nil
	}
	original := s.topology.Original
	for split, view := range s.links {
		for k := range s.Parts {
			links := view.all[view.offsets[k]:view.offsets[k+1]]
			for i, l := range links {
				switch {
				case int64(l.Target) < s.Offsets[k] || int64(l.Target) >= s.Offsets[k+1] ||
					l.Source < 0 || int64(l.Source) >= s.Vertices:
					return fmt.Errorf("%w: %s, part %d: the link from %d to %d belongs to "+
						"another part",
						ErrMismatch, graph.SplitNames[split], k, l.Source, l.Target)
				case i > 0 && cmp.Or(cmp.Compare(original[links[i-1].Target], original[l.Target]),
					cmp.Compare(original[links[i-1].Source], original[l.Source])) > 0:
					return fmt.Errorf("%w: %s, part %d: the link from %d to %d does not follow "+
						"the order of original ids",
						ErrMismatch, graph.SplitNames[split], k, l.Source,
						l.Target)
				}
			}
		}
	}
	for split, view := range s.links {
		if err := dataset.CheckLinkLabels(s.Task, s.Classes, split, view.all,
			view.labels); err != nil {
			return err
		}
	}
	links := graph.LinkSplit{Train: s.links[0].all, Valid: s.links[1].all, Test: s.links[2].all}
	return links.ValidateBy(&s.topology.Graph, func(l graph.Link) bool {
		// the order within rows is not checked here
		return s.topology.Columns.HasLink(&s.topology.Graph, l)
	})
}
