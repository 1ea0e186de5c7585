package config

import "testing"

func TestSuggestions(t *testing.T) {
	for unknown, want := range map[string]string{
		"modle":              "model",
		"trian":              "train",
		"pipline":            "pipeline",
		"models":             "model",
		"train.epoch":        "train.epochs",
		"data.part":          "data.parts",
		"model.lr":           "train.lr",
		"lr":                 "train.lr",
		"TRAIN.LR":           "train.lr",
		"Model":              "model",
		"fanouts":            "sample.fanouts",
		"smaple.kind":        "sample.kind", // not model.kind
		"topology.knid":      "topology.kind",
		"sample.layervertex": "sample.layer_vertices",
		"x":                  "",
		"something_else":     "",
	} {
		if got := nearest(names(new(Config).keys()), unknown); got != want {
			t.Errorf("%s: %q is suggested, expected %q", unknown, got, want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "ac", 1}, {"abc", "abxc", 1},
		{"abc", "axc", 1}, {"kitten", "sitting", 3}, {"modle", "model", 2},
	} {
		for _, pair := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			if got := editDistance(pair[0], pair[1]); got != c.want {
				t.Errorf("from %q to %q: %d, expected %d", pair[0], pair[1], got, c.want)
			}
		}
	}
}
