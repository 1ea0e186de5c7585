package dataset_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/data/dataset"
)

// What arrays and directories hold is told as what tables hold is: times, codes of a split, ids in
// errors about labels and splits, and which files are there.
func TestImportTellsOfArraysAndDirectories(t *testing.T) {
	type input = func(t testing.TB, dir string, o *dataset.ImportOptions)
	arrays := func(members map[string]any) input {
		return inArrays(func(t testing.TB) map[string][]byte {
			made := map[string][]byte{}
			for name, data := range members {
				switch x := data.(type) {
				case []int64:
					made[name] = array(t, x, len(x))
				case []float64:
					made[name] = array(t, x, len(x))
				case [][2]float64:
					var flat []float64
					for _, row := range x {
						flat = append(flat, row[:]...)
					}
					made[name] = array(t, flat, len(x), 2)
				}
			}
			return made
		})
	}
	in := func(format string, names ...string) input {
		return func(t testing.TB, dir string, o *dataset.ImportOptions) {
			for _, name := range names {
				err := os.WriteFile(filepath.Join(dir, name), []byte("0 1\n"), 0o666)
				if err != nil {
					t.Fatal(err)
				}
			}
			o.Format, o.In = format, dir
		}
	}
	for _, c := range []struct {
		name string
		make func(t testing.TB, dir string, o *dataset.ImportOptions)
		want string // in the report or the error
	}{
		{"seconds as weights",
			arrays(map[string]any{"edge_weight": []float64{1600000000, 1600000100}}),
			"array edge_weight is read as weight, and seems to be a time"},
		{"seconds as a feature of edges",
			arrays(map[string]any{"edge_attr": [][2]float64{{1, 1600000000}, {2, 1600000100}}}),
			"array edge_attr is read as edge feature, and seems to be a time"},
		{"days of eight digits as weights",
			arrays(map[string]any{"edge_weight": []int64{20200131, 20210331}}),
			"array edge_weight is read as weight, and seems to be a time"},
		{"seconds as a feature",
			arrays(map[string]any{"x": [][2]float64{{1, 1.6e9}, {2, 1.7e9}, {1, 1.65e9}}}),
			"a column of the features seems to be a time; it is read as float32"},
		{"milliseconds under another name", arrays(map[string]any{"t": []float64{1.6e12, 1.7e12}}),
			"array t is ignored: it seems to be a time"},
		{"codes of a split", arrays(map[string]any{"split_id": []int64{0, 1, 2}}),
			"array split_id is not read; if it has 0, 1 and 2"},
		{"masks without a name of masks",
			arrays(map[string]any{"train": []int64{1, 1, 0}, "test": []int64{0, 0, 1}}),
			"2 train, 0 valid, 1 test"},
		{"masks called as columns are",
			arrays(map[string]any{"is_train": []int64{1, 1, 0}, "isTest": []int64{0, 0, 1}}),
			"2 train, 0 valid, 1 test"},
		{"is_valid without a list to train", arrays(map[string]any{"is_valid": []int64{1, 1, 0}}),
			"array is_valid is not read"},
		{"marks of a split", arrays(map[string]any{"mask": []int64{1, 1, 0}}),
			"array mask is not read; if it marks the vertices to train, call it train_mask"},
		{"an id in an error about a label",
			arrays(map[string]any{"y": []float64{1, 0.5, 2}, "ids": []int64{70, 80, 90}}),
			`y: vertex 1 has label 0.5: bad value`},
		{"the id itself",
			arrays(map[string]any{"y": []float64{1, 0.5, 2}, "ids": []int64{70, 80, 90}}),
			`; its id is "80"`},
		{"an id in two lists",
			arrays(map[string]any{
				"train": []int64{0, 1},
				"test":  []int64{1},
				"ids":   []int64{70, 80, 90},
			}),
			`vertex "80" is listed twice, again in the test list`},
		{"edge lists in a directory", in("edgelist", "a.txt", ".hidden", "b.txt"),
			"holds 2 files, a.txt, b.txt; name the one to read"},
		{"no edge list in a directory", in("edgelist"), "the directory is empty"},
		{"no files of OGB", in("ogb", "data.bin"), "neither edge.csv.gz nor data.npz is there"},
		{"the other files", in("ogb", "data.bin"), "; it has data.bin"},
	} {
		var o dataset.ImportOptions
		c.make(t, t.TempDir(), &o)
		o.DryRun = true
		report, err := dataset.Import(o)
		said := ""
		if err != nil {
			said = err.Error()
		} else {
			said = report.String()
		}
		if !strings.Contains(said, c.want) {
			t.Errorf("%s: %s", c.name, said)
		}
	}
}
