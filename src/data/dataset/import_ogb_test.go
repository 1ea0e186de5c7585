package dataset_test

import (
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/data/dataset"
)

// Files of an OGB folder that are not read are told.
func TestOtherFilesOfOGB(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"edge.csv":          "0,1\n",
		"num-node-list.csv": "2\n",
		"edge_weight.csv":   "3\n",
		"edge_year.csv":     "1990\n",
		"note.csv":          "1\n",
	} {
		write(t, filepath.Join(dir, "raw", name+".gz"), zipped(text))
	}
	write(t, filepath.Join(dir, "split", "time", "train.pt"), nil)
	_, r := imported(t, dataset.ImportOptions{
		Format: "ogb", In: dir, Out: filepath.Join(t.TempDir(), "d"),
	})
	for _, want := range []string{
		"edge_year.csv.gz is ignored: it is a time",
		"note.csv.gz is not read",
		"the split split/time is not read",
	} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, r)
		}
	}
	if strings.Contains(r.String(), "edge_weight.csv.gz is") {
		t.Errorf("weights, which are read, are said not to be:\n%s", r)
	}
}
