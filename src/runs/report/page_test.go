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

	"halognn/src/base/chart"
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
		case "link", "img", "iframe", "object", "use", "image":
			t.Errorf("the page has an element %s", e.XMLName.Local)
		}
		if strings.HasPrefix(e.attr("id"), "plot-") {
			plots++
		}
		for _, a := range e.Attrs {
			if ref := a.Name.Local == "href" || a.Name.Local == "src"; ref ||
				strings.HasPrefix(a.Name.Local, "on") || strings.Contains(a.Value, "url(") {
				t.Errorf("%s has %s %q", e.XMLName.Local, a.Name.Local, a.Value)
			}
		}
	})
	own, _, _ := strings.Cut(string(text), "<script>")
	_, body, _ := strings.Cut(string(text), "</script>")
	if strings.Contains(own+body, "://") || strings.Contains(own+body, "@import") {
		t.Error("the page refers to something outside")
	}
	if plots != 14 {
		t.Errorf("%d plots on the page, expected 14", plots)
	}
	if !strings.Contains(string(text), "Permission is hereby granted") {
		t.Error("the page lacks the licence of uPlot")
	}
	for _, words := range []string{"killed: not finished", "prefers-color-scheme: dark",
		"@media print"} {
		if !strings.Contains(string(text), words) {
			t.Errorf("the page does not say %q", words)
		}
	}
}

// points are those of the curves of a chart.
func points(c *chart.Chart) (out [][][2]float64) {
	for _, k := range c.Drawing.(*chart.Curves).Curves {
		var one [][2]float64
		for i := range k.X {
			one = append(one, [2]float64{k.X[i], k.Y[i]})
		}
		out = append(out, one)
	}
	return out
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
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
	seeds := func(runs []*Run) *chart.Chart {
		for i, r := range runs {
			r.Config["train.seed"], r.Epochs[0]["loss"] = i, 1.75+float64(i)/2
		}
		return lossEpochs(runs)
	}
	for _, c := range []struct {
		what string
		of   func([]*Run) *chart.Chart
		runs []string
		want [][][2]float64
	}{
		{"loss; equal ones are one curve", lossEpochs, []string{"base", "vip"},
			[][][2]float64{{{1, 1.75}, {2, 1}}}},
		{"loss", lossEpochs, []string{"base", "old"}, [][][2]float64{{{1, 1.75}, {2, 1}},
			{{1, 2}}}},
		{"mean over seeds", seeds, []string{"base", "base"}, [][][2]float64{{{1, 2}, {2, 1}}}},
		{"steps", lossSteps, []string{"vip"},
			[][][2]float64{{{1, 2}, {2, 1.5}, {3, 1.25}, {4, 0.75}}}},
		{"validation", func(runs []*Run) *chart.Chart { return validation(runs, "accuracy") },
			[]string{"base"}, [][][2]float64{{{1, 60}, {2, 70}}, {{1, 50}, {2, 50}}}},
		{"waiting", overlapChart, []string{"base"}, [][][2]float64{{{1, 10}, {2, 30}}}},
		{"hit rate and the one so far", hitRates, []string{"vip"}, [][][2]float64{
			{{1, 100. / 3}, {2, 100. / 3}, {3, 50}, {4, 50}},
			{{1, 100. / 3}, {2, 100. / 3}, {3, 37.5}, {4, 40}},
		}},
		{"scaling, ideal first", scalingChart, []string{"base", "wide"}, [][][2]float64{
			{{2, 2.5}, {4, 1.25}}, {{2, 2.5}, {4, 1.5625}},
		}},
	} {
		got := points(c.of(fixture(t, c.runs...)))
		if len(got) != len(c.want) {
			t.Errorf("%s: %d curves, expected %d", c.what, len(got), len(c.want))
			continue
		}
		for i := range got {
			near(t, c.what, got[i], c.want[i])
		}
	}
	band := seeds(fixture(t, "base", "base")).Drawing.(*chart.Curves).Curves[0]
	if want := 0.5 / math.Sqrt2; math.Abs(band.High[0]-2-want) > 1e-12 || band.Low[1] != 1 {
		t.Errorf("the band is from %v to %v", band.Low, band.High)
	}
}

// A learning rate that stays is not drawn.
func TestLearningRates(t *testing.T) {
	runs := fixture(t, "base", "vip")
	if !rates(runs).Empty() {
		t.Error("a rate that is the same everywhere is drawn")
	}
	runs[1].Steps.of["lr"][3] = 0.005
	got := points(rates(runs))
	near(t, "rates", got[1], [][2]float64{{1, 0.01}, {2, 0.01}, {3, 0.01}, {4, 0.005}})
}

// Evictions happened at the second step of killed, and nowhere else.
func TestMarksStandAtEvictions(t *testing.T) {
	curves := hitRates(fixture(t, "killed")).Drawing.(*chart.Curves).Curves
	if marks := curves[0].Marks; !slices.Equal(marks, []float64{2}) {
		t.Errorf("marks at %v, expected one at step 2", marks)
	}
}

func TestBarsAreAsLongAsTheData(t *testing.T) {
	c := tierBars(fixture(t, "base", "vip", "old"))
	var lengths []float64
	for _, one := range c.Drawing.(*chart.Bars).Bars {
		lengths = append(lengths, one.Length())
	}
	if !slices.Equal(lengths, []float64{5200, 5150, 5200}) {
		t.Errorf("bars add up to %v", lengths)
	}
	widths := map[string]float64{}
	for i, e := range parse(t, c.HTML()).find("bar") {
		e.each(func(piece *element) {
			if v, ok := strings.CutPrefix(piece.attr("style"), "width:"); ok {
				widths[fmt.Sprint(i)] += number(t, strings.TrimSuffix(v, "%"))
			}
		})
	}
	if math.Abs(widths["0"]-100) > 0.01 || math.Abs(widths["1"]-100*5150./5200) > 0.01 {
		t.Errorf("widths are %v", widths)
	}
	if text := tierBars(fixture(t, "old")).HTML(); !strings.Contains(text, unknownTier) ||
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
