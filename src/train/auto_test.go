package train

import (
	"slices"
	"strings"
	"testing"

	"halognn/src/access"
	"halognn/src/cache"
)

func candidate(name, policy string, rows float64) trial {
	return trial{name: name, options: CacheOptions{Policy: policy}, rows: rows}
}

// Of each policy the best parameters are tried, fewest rows first, no hopeless ones, and no more than a third of the epochs has room for.
func TestWorthTrying(t *testing.T) {
	all := []trial{
		candidate("none", access.PolicyNone, 100), candidate("vip", access.PolicyVIP, 60), candidate("lookahead", cache.NameLookahead, 50),
		candidate("prefetch 8", cache.NamePrefetch, 80), candidate("prefetch 16", cache.NamePrefetch, 70),
	}
	for _, c := range []struct {
		epochs int
		want   string
	}{{1, "lookahead"}, {5, "lookahead"}, {6, "lookahead vip"}, {9, "lookahead vip prefetch 16"}, {30, "lookahead vip prefetch 16 none"}} {
		var names []string
		for _, o := range worthTrying(all, c.epochs) {
			names = append(names, o.name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%d epochs: tries %s, want %s", c.epochs, got, c.want)
		}
	}
	all[0].rows = 50*hopeless + 1
	if slices.ContainsFunc(worthTrying(all, 30), func(o trial) bool { return o.name == "none" }) {
		t.Error("a hopeless candidate is tried")
	}
	if all[1].name != "vip" {
		t.Error("the candidates themselves were sorted")
	}
}

// The fastest is chosen; among those as fast as that within the noise, the one that transfers least.
func TestFastest(t *testing.T) {
	for _, c := range []struct {
		seconds []float64
		want    int
	}{{[]float64{1, 0.5, 0.9}, 1}, {[]float64{1, 0.99, 2}, 0}, {[]float64{1.03, 1, 1.01}, 0}, {[]float64{1.06, 1.01, 1}, 1}, {[]float64{0}, 0}} {
		var trials []trial
		for _, s := range c.seconds {
			trials = append(trials, trial{seconds: s})
		}
		if got := fastest(trials); got != c.want {
			t.Errorf("%v: %d, want %d", c.seconds, got, c.want)
		}
	}
}
