package train

import (
	"testing"

	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/sample"
)

// A run says at its start what is not as by default, so that two logs can be told apart.
func TestBannerNamesWhatIsUnusual(t *testing.T) {
	for _, c := range []struct {
		o     Options
		nodes bool
		want  string
	}{
		{Options{}, false, ""},
		{Options{}, true, "nodes fetch as one; "},
		{Options{Spec: job.Spec{AsNodes: true}}, false, ""}, // of one rank each
		{Options{Spec: job.Spec{Mode: job.Mode{Name: parallel.ModeData},
			Sample: sample.Neighbours(5)}}, false, ""},
		{Options{Spec: job.Spec{Mode: job.Mode{Name: parallel.ModeSplit}}}, false, "mode split; "},
		{Options{Spec: job.Spec{Mode: job.Mode{Name: parallel.ModeHybrid},
			Sample: sample.Spec{Kind: sample.Poisson}, Locality: job.Locality{Favour: 4}}}, false,
			"mode hybrid, sampler poisson, locality 4; "},
		{Options{Spec: job.Spec{Sums: true}}, false, "sums from owners; "},
	} {
		if got := unusual(&c.o.Spec, c.nodes); got != c.want {
			t.Errorf("%+v: got %q, expected %q", c.o, got, c.want)
		}
	}
}
