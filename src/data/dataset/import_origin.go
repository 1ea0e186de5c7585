package dataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// origin is the content of origin.json. A program that makes .npy files from another source writes
// it beside them, to describe that source. The dataset is then described as an import of that
// source.
type origin struct {
	Format     string      `json:"format"`
	In         string      `json:"in"`
	Name       string      `json:"name"`
	Split      string      `json:"split"`       // where the split comes from
	Classes    int         `json:"classes"`     // y holds 0 to Classes-1, perhaps not all
	ClassNames []string    `json:"class_names"` // names of the classes, in order
	Parts      []graphPart `json:"parts"`       // the graphs, if several were joined
	Notes      []string    `json:"notes"`
}

// readOrigin reads origin.json if the directory has one.
func readOrigin(s *source, dir string) error {
	path := filepath.Join(dir, "origin.json")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || !isDir(dir) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &s.origin)
	}
	o := &s.origin
	if err == nil && (o.Classes < 0 || o.Classes > maxClasses ||
		o.Classes > 0 && len(o.ClassNames) > 0 && len(o.ClassNames) != o.Classes) {
		err = fmt.Errorf("there are %d classes, but %d names of classes: %w; give one name for "+
			"each class",
			o.Classes, len(o.ClassNames),
			ErrValue)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if s.options.Name == "" && o.Name != "" {
		s.name = o.Name
	}
	s.classes, s.classNames, s.parts = o.Classes, o.ClassNames, o.Parts
	s.notes = append(s.notes, o.Notes...)
	noteParts(s)
	return nil
}

// noteParts adds a note with the vertex range of each joined graph.
func noteParts(s *source) {
	if len(s.parts) < 2 {
		return
	}
	for _, p := range s.parts {
		s.notes = append(s.notes,
			fmt.Sprintf("graph %s: vertices %d to %d", p.Name, p.First, p.First+p.Count-1))
	}
}

// checkOrigin checks that origin.json fits what was read.
func checkOrigin(s *source) error {
	if s.origin.Classes > 0 && s.labels == nil && s.marks == nil && s.targets == nil {
		return fmt.Errorf("origin.json says that there are %d classes, but there are no labels: "+
			"%w; add labels, or leave the classes out", s.origin.Classes, ErrValue)
	}
	for _, p := range s.origin.Parts {
		if p.First < 0 || p.Count < 0 || p.Count > s.vertices-p.First {
			return fmt.Errorf("origin.json: graph %s has the vertices %d to %d, but there are "+
				"only %d vertices: %w; correct these numbers", p.Name, p.First,
				p.First+p.Count-1, s.vertices, ErrValue)
		}
	}
	return nil
}

// maxClasses is above the number of classes in any dataset in which each class has a label.
const maxClasses = 1 << 24
