package train

import (
	"testing"

	"halognn/src/job"
	"halognn/src/parallel"
	"halognn/src/sample"
)

// A run says at its start what is not as by default, so that two logs can be told apart.
func TestBannerNamesWhatIsUnusual(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, ""},
		{Options{Spec: job.Spec{Mode: job.Mode{Name: parallel.ModeData},
			Sample: sample.Neighbours(5)}}, ""},
		{Options{Spec: job.Spec{Mode: job.Mode{Name: parallel.ModeSplit}}}, "mode split; "},
		{Options{Spec: job.Spec{Mode: job.Mode{Name: parallel.ModeHybrid},
			Sample: sample.Spec{Kind: sample.Poisson}, Locality: job.Locality{Favour: 4}}}, "mode hybrid, sampler poisson, locality 4; "},
		{Options{Spec: job.Spec{Sums: true}}, "sums from owners; "},
	} {
		if got := unusual(&c.o.Spec); got != c.want {
			t.Errorf("%+v: got %q, expected %q", c.o, got, c.want)
		}
	}
}
