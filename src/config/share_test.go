package config

import "testing"

func TestParseShare(t *testing.T) {
	for _, c := range []struct {
		text string
		want Share
	}{
		{"auto", Share{}}, {"0", Share{Set: true}}, {"0.25", Share{Set: true, Fraction: 0.25}},
		{"8GB", Share{Set: true, Bytes: 8e9}}, {"1.5 MB", Share{Set: true, Bytes: 15e5}},
	} {
		if got, err := ParseShare(c.text); err != nil || got != c.want {
			t.Errorf("%q is %+v, %v; want %+v", c.text, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "1.1", "-1", "nan", "8", "GB", "-3GB", "many"} {
		if got, err := ParseShare(bad); err == nil {
			t.Errorf("%q is taken for %+v", bad, got)
		}
	}
}
