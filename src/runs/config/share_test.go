package config

import (
	"testing"

	"halognn/src/step/residence"
)

func TestParseShare(t *testing.T) {
	for _, c := range []struct {
		text string
		want residence.GPURows
	}{
		{"auto", residence.GPURows{}}, {"0", residence.GPURows{Set: true}}, {"0.25",
			residence.GPURows{Set: true, Fraction: 0.25}},
		{"8GB", residence.GPURows{Set: true, Bytes: 8e9}}, {"1.5 MB", residence.GPURows{Set: true,
			Bytes: 15e5}},
	} {
		if got, err := parseShare(c.text); err != nil || got != c.want {
			t.Errorf("%q is %+v, %v; want %+v", c.text, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "1.1", "-1", "nan", "8", "GB", "-3GB", "many"} {
		if got, err := parseShare(bad); err == nil {
			t.Errorf("%q is taken for %+v", bad, got)
		}
	}
}
