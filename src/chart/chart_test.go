package chart

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
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

// find returns the children that have the class.
func (e *element) find(class string) (out []element) {
	for _, one := range e.Children {
		if slices.Contains(strings.Fields(one.attr("class")), class) {
			out = append(out, one)
		}
	}
	return out
}

// parse reads a plot back; what is not well-formed XML is a fault.
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

// fan returns n curves that end apart.
func fan(n, points int) *Curves {
	c := &Curves{X: "x", Y: "y"}
	for color := range n {
		one := Curve{Names: []string{fmt.Sprintf("curve %d", color)}, Color: color}
		for i := range points {
			one.X, one.Y = append(one.X, float64(i)), append(one.Y, float64(i*color))
		}
		c.Add(one)
	}
	return c
}

// Curves over many steps have points too, a few, whose shapes tell them apart.
func TestLongCurvesHaveMarkers(t *testing.T) {
	shapes := map[string]int{}
	for _, m := range parse(t, New("", "", "", fan(2, 4*mostMarkers)).SVG()).find("marker") {
		shape := strings.TrimLeft(m.attr("d"), "M-0123456789. ")
		shapes[shape]++
	}
	if len(shapes) != 2 {
		t.Errorf("shapes %v, expected two", shapes)
	}
	for shape, n := range shapes {
		if n < fewMarkers || n > 2*fewMarkers {
			t.Errorf("%d markers %s", n, shape)
		}
	}
}

// Twenty curves have twenty looks, and their names stand apart and inside the plot.
func TestLooksDoNotRunOut(t *testing.T) {
	const n = 20
	c := fan(n, 3)
	svg := parse(t, New("", "", "", c).SVG())
	looks := map[string]bool{}
	for _, path := range svg.find("curve") {
		looks[path.attr("class")] = true
		for _, class := range strings.Fields(path.attr("class")) {
			if !strings.Contains(Style, "svg ."+class+" ") {
				t.Errorf("the style sheet has no class %s", class)
			}
		}
	}
	if len(looks) != n {
		t.Errorf("%d curves have %d looks: %v", n, len(looks), looks)
	}
	_, height := c.size()
	var at []float64
	for _, name := range svg.find("name") {
		var y float64
		if _, err := fmt.Sscan(name.attr("y"), &y); err != nil {
			t.Fatal(err)
		}
		if y < labelHeight || y > height-plotBottom+labelHeight {
			t.Errorf("%s stands at %g of %g", name.Text, y, height)
		}
		at = append(at, y)
	}
	slices.Sort(at)
	for i := 1; i < len(at); i++ {
		if at[i]-at[i-1] < labelHeight-0.01 {
			t.Errorf("two names stand at %g and %g", at[i-1], at[i])
		}
	}
	if len(at) != n {
		t.Errorf("%d names for %d curves", len(at), n)
	}
}

// A file carries its style. Programs that know no CSS variables and no @media get the light theme.
func TestFileStandsAlone(t *testing.T) {
	c := fan(2, 3)
	c.Heading, c.At, c.AtLabels = "a <heading>", []float64{0, 2}, []string{"none", "all"}
	c.Band = &Band{X: []float64{0, 2}, Upper: []float64{1, 2}, Lower: []float64{0, 1}}
	text := New("id", "a title", "", c).File("a plot of a test")
	if !strings.HasPrefix(text, FileHead("a plot of a test")) || strings.Contains(text, "var(") {
		t.Errorf("the file begins with %.200s", text)
	}
	svg := parse(t, text)
	if svg.attr("aria-label") != "a title" || svg.Children[0].XMLName.Local != "style" {
		t.Errorf("the file says %q and begins with %s", svg.attr("aria-label"),
			svg.Children[0].XMLName.Local)
	}
	plain, _, _ := strings.Cut(svg.Children[0].Text, "@media")
	for _, hue := range append(light.hues[:], light.ink, light.paper) {
		if !strings.Contains(plain, hue) {
			t.Errorf("colour %s stands below @media only", hue)
		}
	}
	if len(svg.find("heading")) != 1 || len(svg.find("band")) != 1 ||
		!strings.Contains(text, ">none<") {
		t.Error("the heading, the band or the labels of x are missing")
	}
	if _, rows := c.Table(); len(rows) != 3 || rows[2][0] != "all" || rows[1][0] != "1" {
		t.Errorf("the table has rows %v", rows)
	}
}
