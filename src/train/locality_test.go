package train

import (
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/compute/ref"
	"halognn/src/policy"
	"halognn/src/sample"
)

// Near vertices are drawn more often, so fewer rows are fetched; what is drawn depends on the
// cache, and not on how minibatches are prepared, nor on a stop.
func TestLocalityFetchesLess(t *testing.T) {
	shards := generatedIn(t, 4)
	for _, kind := range []sample.Kind{sample.Poisson, sample.LADIES} {
		o := drawnBy(kind)
		o.Cache = policy.Settings{Policy: policy.Degree, Alpha: 0.2}
		run := journey{shards: shards, ranks: 2, dir: t.TempDir()}
		plain := run.finished(t, o)
		o.Locality.Favour, o.Locality.Vertices = 8, 20
		run.dir = t.TempDir()
		want := run.finished(t, o)
		if want.Remote >= plain.Remote*9/10 {
			t.Errorf("%s: %d rows an epoch, without locality %d", kind, want.Remote, plain.Remote)
		}
		o.Depth = 0
		run.dir = t.TempDir()
		run.stopped(t, o, 3)
		sameRun(t, run.finished(t, o), want)
		o.Cache.Alpha = 0.4
		run.dir = t.TempDir()
		if other := run.finished(t, o); other.BlocksDigest == want.BlocksDigest {
			t.Errorf("%s: another cache draws the same", kind)
		}
		_, err := WriteBlocks(Export{Shards: shards, Device: ref.New(), Workers: 1, Ranks: 2, Steps: 1,
			Dir: filepath.Join(t.TempDir(), "blocks")}, o)
		if err == nil || !strings.Contains(err.Error(), "set sample.locality=1") {
			t.Errorf("%s: blocks that no run draws: %v", kind, err)
		}
	}
}
