package chart

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestNumbers(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 5: "5", -1234: "-1 234", 1234567: "1 234 567",
		0.4418: "0.4418", 15.5: "15.50", 2e-7: "2e-07", 1234.5: "1 234", 3.25e17: "3.25e+17"} {
		if got := strings.ReplaceAll(Number(x), "\u202f", " "); got != want {
			t.Errorf("Number(%g) is %q, expected %q", x, got, want)
		}
	}
	for x, want := range map[float64]string{999.9: "1000", 9999.9: "10000", 999960: "1000k",
		-1500: "-1500", 2e-5: "2e-05", 0: "0", 1500: "1500", 94271: "94.3k", 2e6: "2M",
		3.2e9: "3.2G", 0.0428: "0.0428"} {
		if got := Short(x); got != want {
			t.Errorf("Short(%g) is %q, expected %q", x, got, want)
		}
	}
}

// Ticks are round numbers, distinct and within the scale, however close the values and whatever
// their size.
func TestTicksAreRoundAndWithin(t *testing.T) {
	next := func(x float64, n int) float64 {
		for range n {
			x = math.Nextafter(x, math.Inf(1))
		}
		return x
	}
	for _, s := range []scale{
		newScale(0, 1, 0, 100, false), newScale(-3, 17.2, 0, 100, false),
		newScale(5, 5, 0, 100, false), newScale(0, 0, 0, 100, false),
		newScale(0.3, 4000, 0, 100, true), newScale(7, 9, 0, 100, true),
		newScale(0.7, next(0.7, 1), 0, 100, false), newScale(0.7, next(0.7, 3), 0, 100, true),
		newScale(-1e99, next(-1e99, 2), 0, 100, false), newScale(1e16, 1e16+2, 0, 100, false),
		newScale(0, math.SmallestNonzeroFloat64, 0, 100, false),
		newScale(-1e100, 1e100, 0, 100, false), newScale(95.01, 95.03, 0, 100, false),
		newScale(1e6, 1e6+20, 0, 100, false), newScale(1e-9, 2e-9, 0, 100, false),
	} {
		all := s.ticks(6)
		if len(all) < 2 || len(all) > 15 {
			t.Errorf("%+v: ticks %v", s, all)
		}
		for _, v := range all {
			if at := s.at(v); !(at >= -0.2 && at <= 100.2) || math.Signbit(v) && v == 0 {
				t.Errorf("%+v: tick %g at %g", s, v, at)
			}
		}
		labels := tickLabels(all)
		for i, one := range labels {
			if slices.Contains(labels[:i], one) || textWidth(one) > plotLeft-4 {
				t.Errorf("%+v: ticks %v are labelled %q", s, all, labels)
				break
			}
		}
	}
}

// Only text that is too wide is cut.
func TestShorten(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"", 5, ""}, {"abcde", 5, "abcde"}, {"abcdef", 5, "ab…ef"}, {"abcdefg", 4, "ab…g"},
		{strings.Repeat("x", 34), 34, strings.Repeat("x", 34)},
		{"世界世界世界", 6, "世…界"}, {"世界", 1, "…"},
	} {
		if got := shorten(c.in, c.n); got != c.want {
			t.Errorf("shorten(%q, %d) is %q, expected %q", c.in, c.n, got, c.want)
		}
	}
	same := Curve{Names: []string{"auto", "lookahead", "none", "prefetch"}} // 34 letters in all
	if got := same.label(); got != "auto = lookahead = none = prefetch" {
		t.Errorf("the label is %q", got)
	}
	same.Names = append(same.Names, "vip")
	if got := same.label(); got != "auto = 4 more" {
		t.Errorf("the label is %q", got)
	}
}
