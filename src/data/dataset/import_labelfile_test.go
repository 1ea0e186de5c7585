package dataset_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/model/task"
)

// Labels may lie in a text file of any kind: a row for each vertex in the order of the node table, or rows
// of an id and its labels in any order, where a vertex without a row has none.
func TestImportLabelFiles(t *testing.T) {
	const edges, nodes = "source,target\nann,bob\nbob,cy\n", "id,f\nbob,1\nann,2\ncy,3\n"
	for _, c := range []struct {
		name, text string
		task       string
		want       []int32 // of bob, ann and cy
		fault      string
	}{
		{"y.txt", "b\na\nb\n", "", []int32{1, 0, 1}, ""},
		{"y.csv", "label\nb\na\nb\n", "", []int32{1, 0, 1}, ""},
		{"y.csv", "3\n7\n3\n", "", []int32{0, 1, 0}, ""},
		{"y.tsv", "cy\tb\nann\ta\n", "", []int32{-1, 0, 1}, ""},
		{"y.csv", "id,label\ncy,b\nann,a\nbob,\n", "", []int32{-1, 0, 1}, ""},
		{"y.csv", "person,colour\ncy,b\nann,a\n", "", []int32{-1, 0, 1}, ""},
		{"y.csv", "id,p,q\ncy,0,1\nann,1,1\nbob,1,0\n", task.Multilabel, nil, ""},
		{"y.csv", "id,y\ncy,1.5\nann,-2\n", task.Regression, nil, ""},
		{"y.csv", "label,id\nb,cy\na,ann\n", "", []int32{-1, 0, 1}, ""},
		{"y.csv", "topic\nb\na\nb\n", "", []int32{1, 0, 1}, ""},
		{"y.csv", "y\nn\ny\n", "", []int32{1, 0, 1}, ""},
		{"labels.dat", "cy b\nann a\n", "", []int32{-1, 0, 1}, ""},
		{"y.csv", "x,label,id\n7,b,cy\n8,a,ann\n", "", []int32{-1, 0, 1}, ""},
		{"y.csv", "# label,id\nb,cy\na,ann\n", "", []int32{-1, 0, 1}, ""},
		{"y.csv", "# label,id\ny,cy\nn,ann\n", "", []int32{-1, 0, 1}, ""},
		{"y.csv", "cy,1\ncy,2\nann,1\n", "", nil, "comes twice; column 0 is the id: of several labels want the id as the first column, or called id; if a vertex has a row for each"},
		{"y.txt", "topic\nb\n", "", nil, "2 rows for 3 vertices; want a label for each"},
		{"y.txt", "label\nb\na\n", "", nil, "line 1: files do not fit together: \"label\" may be a name or the label"},
		{"y.txt", "topic\n1\n0\n", "", nil, "--header reads it as a name, and --no-header as a label"},
		{"y.csv", "x9,cat\nbob,dog\nann,cat\n", "", nil, "line 1: bad value: is this row the names of the columns, or"},
		{"y.csv", "0,1\n1,0\n1,1\n", "", nil, "column 0 is the id: want one column, or the id first"},
		{"y.txt", "b\na\n", "", nil, "2 rows for 3 vertices; want a label for each"},
		{"y.txt", "b\na\nb\nc\n", "", nil, "line 4: files do not fit together: more rows than the 3 vertices"},
		{"y.txt", "cy a\ndan b\n", "", nil, "line 2: vertex \"dan\""},
		{"y.txt", "cy a\ncy b\n", "", nil, "line 2: bad value: vertex \"cy\" comes twice"},
	} {
		for _, gz := range []string{"", ".gz"} {
			dir := written(t, map[string]string{"edges.csv": edges, "nodes.csv": nodes})
			content := []byte(c.text)
			if gz != "" {
				content = zipped(c.text)
			}
			o := dataset.ImportOptions{Format: "csv", In: dir, Out: filepath.Join(t.TempDir(), "d"),
				Table: dataset.TableOptions{Labels: []string{filepath.Join(dir, c.name+gz)}}}
			if c.task == task.Regression {
				o.Task = c.task
			}
			write(t, o.Table.Labels[0], content)
			if c.fault != "" {
				if _, err := dataset.Import(o); err == nil || !strings.Contains(err.Error(), c.fault) {
					t.Errorf("%q: %v, want %q", c.text, err, c.fault)
				}
				continue
			}
			d, r := imported(t, o)
			got := npy.View[int32](d.Labels.Data)
			switch c.task {
			case task.Multilabel:
				if !slices.Equal(d.Labels.Data, []byte{1, 0, 1, 1, 0, 1}) {
					t.Errorf("%q: labels %v", c.text, d.Labels.Data)
				}
			case task.Regression:
				if y := npy.View[float32](d.Labels.Data); y[0] == y[0] || y[1] != -2 || y[2] != 1.5 {
					t.Errorf("%q: numbers %v", c.text, y)
				}
			default:
				if !slices.Equal(got, c.want) {
					t.Errorf("%q: labels %v, want %v", c.text, got, c.want)
				}
			}
			if !strings.Contains(r.String(), c.name+gz) || d.Meta.Features != 1 {
				t.Errorf("%q: %d features\n%s", c.text, d.Meta.Features, r)
			}
		}
	}
}

// An array of labels that does not fit is named, with the flag; a column that is called as labels
// are is none, nor a feature, beside a file of labels.
func TestImportLabelFilesBesideLabels(t *testing.T) {
	dir := written(t, map[string]string{"edges.csv": "source,target\nann,bob\n", "nodes.csv": "id,label,f\nbob,5,1\nann,6,2\n", "y.csv": "0\n1\n"})
	write(t, filepath.Join(dir, "y.npy"), array(t, []int64{0, 1, 1}, 3))
	o := dataset.ImportOptions{Format: "csv", In: dir, Table: dataset.TableOptions{Labels: []string{filepath.Join(dir, "y.csv")}}}
	d, r := imported(t, o)
	if !slices.Equal(d.Meta.FeatureNames, []string{"f"}) || !strings.Contains(r.String(), "column label of nodes.csv is not read: --label names a file") {
		t.Errorf("features %q\n%s", d.Meta.FeatureNames, r)
	}
	o.Table.Labels, o.DryRun = []string{filepath.Join(dir, "y.npy")}, true
	want := "--label " + o.Table.Labels[0] + ": 3 rows for 2 vertices"
	if _, err := dataset.Import(o); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// Without a node table labels have ids.
func TestImportLabelFilesOfEdgesAlone(t *testing.T) {
	dir := written(t, map[string]string{"edges.csv": "source,target\nann,bob\nbob,cy\n",
		"ids.txt": "cy 1\nbob 0\nann 1\n", "rows.txt": "1\n0\n1\n"})
	o := dataset.ImportOptions{Format: "csv", In: dir, Table: dataset.TableOptions{
		Labels: []string{filepath.Join(dir, "ids.txt")}}}
	d, _ := imported(t, o)
	if got := npy.View[int32](d.Labels.Data); !slices.Equal(got, []int32{1, 0, 1}) {
		t.Errorf("labels %v", got)
	}
	o.Table.Labels, o.DryRun = []string{filepath.Join(dir, "rows.txt")}, true
	if _, err := dataset.Import(o); err == nil || !strings.Contains(err.Error(), "want two, the id of a vertex") {
		t.Error(err)
	}
}

// A column that is called like a file is the label; what is neither is an error that says so.
func TestImportLabelColumnsCalledLikeFiles(t *testing.T) {
	dir := written(t, map[string]string{"edges.csv": "source,target\nann,bob\n", "nodes.csv": "id,topic.txt\nbob,b\nann,a\n"})
	o := dataset.ImportOptions{Format: "csv", In: dir, Table: dataset.TableOptions{Labels: []string{"topic.txt"}}}
	d, _ := imported(t, o)
	if got := npy.View[int32](d.Labels.Data); !slices.Equal(got, []int32{1, 0}) || d.Meta.Features != 0 {
		t.Errorf("labels %v, %d features", got, d.Meta.Features)
	}
	o.DryRun = true
	for name, want := range map[string]string{
		"topics.txt": "--label topics.txt: neither a column of the node table nor a file",
		"y.npy.gz":   `there is no column "y.npy.gz", which --label names`,
	} {
		o.Table.Labels = []string{name}
		if _, err := dataset.Import(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
