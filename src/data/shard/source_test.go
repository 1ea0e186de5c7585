package shard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/data/dataset"
)

// A vertex has one id: other spellings of the number name none, so that no row of the output stays
// empty because its vertex was given twice.
func TestIDsAreSpelledOneWay(t *testing.T) {
	ids := &SourceIDs{vertices: 40}
	if found, err := ids.Find([]string{"7", "0", "39"}); err != nil ||
		!slices.Equal(found, []int32{7, 0, 39}) {
		t.Errorf("found %d, %v", found, err)
	}
	for _, other := range []string{"007", "+7", "-0", "40", "x", ""} {
		if found, err := ids.Find([]string{"7", other}); !errors.Is(err, ErrNoVertex) {
			t.Errorf("%q is found: %d, %v", other, found, err)
		}
	}
	if _, err := ids.Find([]string{"7", "7"}); err == nil {
		t.Error("a vertex is given twice")
	}
}

// A table of links and scores, as --top writes it, is one of links; candidates follow where they are
// asked for.
func TestReadLinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "partners.csv")
	if err := os.WriteFile(path, []byte("source,target,score\n1,2,0.5\n3,4,-1e-3\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for more, want := range map[int]string{0: "[[1 2] [3 4]]", 1: "[[1 2 0.5] [3 4 -1e-3]]"} {
		if rows, err := ReadLinks(path, more, &SourceIDs{}, plain); err != nil || fmt.Sprint(rows) != want {
			t.Errorf("%d more: %v, %v", more, rows, err)
		}
	}
	const want = `line 2 has 3 columns, "1,2,0.5"; want a source, a target and candidates`
	if rows, err := ReadLinks(path, 2, &SourceIDs{}, plain); !errors.Is(err, dataset.ErrValue) || !strings.Contains(err.Error(), want) {
		t.Errorf("2 more: %v, %v", rows, err)
	}
}
