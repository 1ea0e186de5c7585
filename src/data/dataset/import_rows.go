package dataset

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"halognn/src/base/npy"
	"halognn/src/data/dataset/table"
)

// eachRow calls the function `visit` with every row of a text table.
func eachRow(path string, sep table.Separator, visit func(r *table.Reader) error) error {
	r, err := table.Open(path, sep)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		ok, err := r.Next()
		if err != nil || !ok {
			return err
		}
		if err := visit(r); err != nil {
			return err
		}
	}
}

// readPairs reads edges from a table with two columns, source and destination. It skips one header
// line.
func readPairs(e *edgeSource, path string) error {
	var edge [2]int64
	return eachRow(path, table.Comma, func(r *table.Reader) error {
		if err := r.Ints(edge[:]); err != nil {
			if r.Line() == 1 && isHeader(r) {
				return nil
			}
			return err
		}
		if err := e.addEdge(edge[0], edge[1]); err != nil {
			return r.Errorf("%w", err)
		}
		return nil
	})
}

// isHeader reports whether no field of the row is a number.
func isHeader(r *table.Reader) bool {
	for _, f := range r.Fields(nil) {
		if _, ok := table.ParseFloat(f); ok || len(f) == 0 {
			return false
		}
	}
	return true
}

// eachChunk reads an array in chunks of at most n numbers.
func eachChunk[T npy.Element](r *npy.Reader, n int, visit func(part []T) error) error {
	buf := make([]T, min(n, 1<<14))
	for n > 0 {
		got, err := npy.Read(r, buf[:min(n, len(buf))])
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if got == 0 {
			return io.ErrUnexpectedEOF
		}
		if err := visit(buf[:got]); err != nil {
			return err
		}
		n -= got
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// filesIn returns the names in a directory that end in suffix, sorted and without the suffix. It
// returns none if the directory cannot be read. It does not use filepath.Glob, because the
// directory's own name may contain pattern characters.
func filesIn(dir, suffix string) (names []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), suffix); ok {
			names = append(names, name)
		}
	}
	return names
}

// either returns the path dir/name.gz or dir/name of the file that exists, or "" if neither file
// does.
func either(dir, name string) string {
	for _, p := range []string{filepath.Join(dir, name+".gz"), filepath.Join(dir, name)} {
		if exists(p) {
			return p
		}
	}
	return ""
}
