package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"halognn/src/chart"
)

// element is a parsed XML element.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Text     string     `xml:",chardata"`
	Children []element  `xml:",any"`
}

func (e *element) attr(name string) string {
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func (e *element) each(visit func(*element)) {
	visit(e)
	for i := range e.Children {
		e.Children[i].each(visit)
	}
}

// find returns the elements of the class.
func (e *element) find(class string) (out []*element) {
	e.each(func(one *element) {
		if strings.Contains(" "+one.attr("class")+" ", " "+class+" ") {
			out = append(out, one)
		}
	})
	return out
}

func parse(t *testing.T, text string) *element {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	var root element
	if err := d.Decode(&root); err != nil {
		t.Fatalf("not well-formed: %v", err)
	}
	if _, err := d.Token(); err != io.EOF && err != nil {
		t.Fatalf("not well-formed after the end: %v", err)
	}
	return &root
}

// The page is well-formed for any names of directories, and loads nothing from the network.
func TestPageIsWellFormedAndStandsAlone(t *testing.T) {
	hostile := filepath.Join(t.TempDir(), `<b onclick="x">&amp; "q' | ]]>`)
	if err := os.CopyFS(hostile, os.DirFS("testdata/vip")); err != nil {
		t.Fatal(err)
	}
	runs, err := Load([]string{"testdata/base", "testdata/wide", "testdata/killed", "testdata/old",
		hostile})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Write(runs, dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, PageFile))
	if err != nil {
		t.Fatal(err)
	}
	plots := 0
	parse(t, string(text)).each(func(e *element) {
		switch e.XMLName.Local {
		case "script", "link", "img", "iframe", "object", "use", "image", "b":
			t.Errorf("the page has an element %s", e.XMLName.Local)
		case "svg":
			plots++
			if e.attr("role") != "img" || e.attr("aria-label") == "" {
				t.Error("a plot says nothing to readers of the text alone")
			}
		}
		for _, a := range e.Attrs {
			if ref := a.Name.Local == "href" || a.Name.Local == "src"; ref &&
				!strings.HasPrefix(a.Value, "#") || strings.Contains(a.Value, "url(") {
				t.Errorf("%s refers to %q", e.XMLName.Local, a.Value)
			}
		}
	})
	if bare := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg",
		""); strings.Contains(bare, "://") || strings.Contains(bare, "@import") {
		t.Error("the page refers to something outside")
	}
	files, err := filepath.Glob(filepath.Join(dir, PlotsDir, "*.svg"))
	if err != nil || len(files) != plots || plots != 14 {
		t.Errorf("%d plots on the page, %d files, expected 14 (%v)", plots, len(files), err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		parse(t, string(text))
	}
	for _, words := range []string{"killed: not finished", "prefers-color-scheme: dark",
		"@media print"} {
		if !strings.Contains(string(text), words) {
			t.Errorf("the page does not say %q", words)
		}
	}
}

// axis maps values to coordinates, found from two ticks of a plot.
type axis struct{ v0, v1, p0, p1 float64 }

func (a axis) value(at float64) float64 { return a.v0 + (at-a.p0)/(a.p1-a.p0)*(a.v1-a.v0) }

func number(t *testing.T, s string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// axes finds the scales of a plot from the labels beside grid lines and ticks, as a reader would.
func axes(t *testing.T, svg *element, log bool) (x, y axis) {
	t.Helper()
	var xs, ys [][2]float64 // value, place
	for i, e := range svg.Children {
		if e.XMLName.Local != "line" || i+1 == len(svg.Children) {
			continue
		}
		label := svg.Children[i+1]
		v, err := strconv.ParseFloat(label.Text, 64)
		if err != nil {
			continue
		}
		if log {
			v = math.Log(v)
		}
		switch e.attr("class") {
		case "grid":
			ys = append(ys, [2]float64{v, number(t, e.attr("y1"))})
		case "axis":
			xs = append(xs, [2]float64{v, number(t, e.attr("x1"))})
		}
	}
	if len(xs) < 2 || len(ys) < 2 {
		t.Fatalf("%d ticks of x, %d of y", len(xs), len(ys))
	}
	of := func(all [][2]float64) axis {
		first, last := all[0], all[len(all)-1]
		return axis{first[0], last[0], first[1], last[1]}
	}
	return of(xs), of(ys)
}

// points reads a curve back from its path.
func points(t *testing.T, path *element, x, y axis) (out [][2]float64) {
	t.Helper()
	for _, one := range strings.FieldsFunc(path.attr("d"),
		func(r rune) bool { return r == 'M' || r == 'L' }) {
		var at [2]float64
		if _, err := fmt.Sscan(one, &at[0], &at[1]); err != nil {
			t.Fatal(err)
		}
		out = append(out, [2]float64{x.value(at[0]), y.value(at[1])})
	}
	return out
}

func near(t *testing.T, what string, got, want [][2]float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: points %v, expected %v", what, got, want)
		return
	}
	for i := range got {
		for k := range 2 {
			if math.Abs(got[i][k]-want[i][k]) > 1e-3*max(1, math.Abs(want[i][k])) {
				t.Errorf("%s: points %v, expected %v", what, got, want)
				return
			}
		}
	}
}

func TestCurvesGoThroughTheData(t *testing.T) {
	for _, c := range []struct {
		what string
		of   func([]*Run) *chart.Chart
		runs []string
		log  bool
		want [][][2]float64
	}{
		{"loss; equal ones are one curve", lossEpochs, []string{"base", "vip"}, false,
			[][][2]float64{{{1, 1.75}, {2, 1}}}},
		{"loss", lossEpochs, []string{"base", "old"}, false,
			[][][2]float64{{{1, 1.75}, {2, 1}}, {{1, 2}}}},
		{"steps", lossSteps, []string{"vip"}, false,
			[][][2]float64{{{1, 2}, {2, 1.5}, {3, 1.25}, {4, 0.75}}}},
		{"validation", func(runs []*Run) *chart.Chart { return validation(runs, "accuracy") },
			[]string{"base"}, false, [][][2]float64{{{1, 60}, {2, 70}}, {{1, 50}, {2, 50}}}},
		{"waiting", overlapChart, []string{"base"}, false, [][][2]float64{{{1, 10}, {2, 30}}}},
		{"hit rate and the one so far", hitRates, []string{"vip"}, false, [][][2]float64{
			{{1, 100. / 3}, {2, 100. / 3}, {3, 50}, {4, 50}},
			{{1, 100. / 3}, {2, 100. / 3}, {3, 37.5}, {4, 40}},
		}},
		{"scaling, ideal first", scalingChart, []string{"base", "wide"}, true, [][][2]float64{
			{{math.Log(2), math.Log(2.5)}, {math.Log(4), math.Log(1.25)}},
			{{math.Log(2), math.Log(2.5)}, {math.Log(4), math.Log(1.5625)}},
		}},
	} {
		svg := parse(t, c.of(fixture(t, c.runs...)).SVG())
		x, y := axes(t, svg, c.log)
		paths := svg.find("curve")
		if len(paths) != len(c.want) {
			t.Errorf("%s: %d curves, expected %d", c.what, len(paths), len(c.want))
			continue
		}
		for i, path := range paths {
			near(t, c.what, points(t, path, x, y), c.want[i])
		}
	}
}

// Evictions happened at the second step of killed, and nowhere else.
func TestMarksStandAtEvictions(t *testing.T) {
	svg := parse(t, hitRates(fixture(t, "killed")).SVG())
	x, _ := axes(t, svg, false)
	marks := svg.find("mark")
	if len(marks) != 1 || math.Abs(x.value(number(t, marks[0].attr("x1")))-2) > 1e-3 {
		t.Errorf("%d marks, expected one at step 2", len(marks))
	}
}

func TestBarsAreAsLongAsTheData(t *testing.T) {
	svg := parse(t, tierBars(fixture(t, "base", "vip", "old")).SVG())
	perRow, sum := 0.0, map[string]float64{}
	for _, area := range svg.find("area") {
		name := area.Children[0].Text // "vip, own cache: 350"
		run, rest, _ := strings.Cut(name, ", ")
		_, value, _ := strings.Cut(rest, ": ")
		rows := number(t, strings.ReplaceAll(value, "\u202f", ""))
		wide := number(t, area.attr("width"))
		if perRow == 0 {
			perRow = wide / rows
		}
		if math.Abs(wide-rows*perRow) > 0.02 {
			t.Errorf("%s is %g wide, expected %g", name, wide, rows*perRow)
		}
		sum[run] += rows
	}
	if sum["base"] != 5200 || sum["vip"] != 5150 || sum["old"] != 5200 {
		t.Errorf("bars add up to %v", sum)
	}
	if text := tierBars(fixture(t, "old")).SVG(); !strings.Contains(text, unknownTier) ||
		strings.Contains(text, "own cache: 0") {
		t.Error("an old run's transferred rows are not shown, or what it did not count is")
	}
}

// A measured step is shown beside the model's step at the run's depth: equation 2 for base, which
// prepares nothing in advance, equation 5 for vip.
func TestModelStandsBesideTheMeasurement(t *testing.T) {
	_, rows := modelBars(fixture(t, "base", "old", "vip")).Table()
	want := [][]string{{"base", "1", "0.8750"}, {"vip", "0.7500", "0.6875"}}
	if !slices.EqualFunc(rows, want, slices.Equal) {
		t.Errorf("the bars are of %q, want %q", rows, want)
	}
}
