package shard

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/mem/memtest"
	"halognn/src/data/dataset"
	"halognn/src/model/task"
)

// Whatever one file of the parts holds, Open and Verify return, and sampling what Open accepted
// ends in an error about the files if it does not succeed.
func FuzzParts(f *testing.F) {
	meta := dataset.Meta{Name: "tiny", Task: task.Multiclass, Features: 2, Classes: 3}
	ds := makeDataset(f, rand.New(rand.NewPCG(1, 1)), 12, meta)
	dir := write(f, ds, 2)
	type file struct {
		path    string
		content []byte
	}
	var files []file
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		files = append(files, file{path, content})
		return err
	}); err != nil {
		f.Fatal(err)
	}
	for i := range files {
		f.Add(uint8(i), files[i].content)
	}
	f.Fuzz(func(t *testing.T, which uint8, content []byte) {
		one := files[int(which)%len(files)]
		put := func(content []byte) {
			if err := os.WriteFile(one.path, content, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		put(content)
		defer put(one.content)
		memtest.Bounded(t, 128<<20, func() {
			s, err := Open(dir, Options{})
			if err != nil {
				return
			}
			defer s.Close()
			_ = s.Verify()
			err = mem.Contain(func() error { return sampling(s) })
			if p := (*mem.Panic)(nil); errors.As(err, &p) && s.Damage(err) == nil {
				t.Errorf("nothing is wrong with the files, but: %v", err)
			}
			for p := range s.Parts {
				if part, err := s.OpenPart(p); err == nil {
					_ = part.Close()
				}
			}
		})
	})
}
