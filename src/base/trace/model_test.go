package trace

import "testing"

// MassiveGNN, section 3.3, equations 2 to 6, and equation 9, worked by hand.
func TestStepModel(t *testing.T) {
	for _, c := range []struct {
		name                                   string
		terms                                  Terms
		base, prepare, first, prefetch, g, out float64
	}{
		{"remote rows are slowest",
			Terms{Sample: 2, Lookup: 1, Score: 3, Remote: 8, Copy: 4, Train: 3, Sync: 1},
			2 + 8 + 4, 2 + 1 + 8, 11 + 11, 11, 3.5, 4},
		{"scoring is slowest", Terms{Sample: 2, Lookup: 1, Score: 9, Remote: 5, Copy: 4, Train: 16},
			2 + 5 + 16, 2 + 1 + 9, 12 + 16, 16, 23. / 16, 1},
		{"copying hides the network", Terms{Sample: 1, Remote: 2, Copy: 5, Train: 2},
			1 + 5 + 2, 1 + 5, 6 + 6, 6, 4, 0},
		{"a GPU", Terms{Sample: 1, Remote: 2, Copy: 5, Up: 3, Gather: 1, Train: 4, Sync: 2,
			Staged: 1},
			1 + 5 + 3 + 8, 1 + 5 + 3, 9 + 9, 9, 17. / 8, 0},
		{"nothing", Terms{}, 0, 0, 0, 0, 0, 0},
	} {
		m := c.terms.Model()
		if m.Terms != c.terms || m.Base != c.base || m.Prepare != c.prepare || m.First != c.first ||
			m.Prefetch != c.prefetch || m.Gain != c.g {
			t.Errorf("%s: %+v, want %g, %g, %g, %g, %g", c.name, m, c.base, c.prepare, c.first,
				c.prefetch, c.g)
		}
		if got := c.terms.Stall(); got != c.out {
			t.Errorf("%s: a stall of %g s, want %g", c.name, got, c.out)
		}
	}
}

// Every phase but waiting and saving is part of one term.
func TestTermsAreThePhases(t *testing.T) {
	phases := map[string]float64{}
	for i, p := range []Phase{Sample, Plan, Score, Exchange, Slice, Gather, Forward, Backward,
		Update, Sync, Wait, Save} {
		phases[p.String()] = float64(int(4) << i)
	}
	phases[Ask.String()], phases[Shuffle.String()] = 2, 1
	if len(phases) != int(NumPhases) {
		t.Fatalf("%d phases, not %d", len(phases), NumPhases)
	}
	want := Terms{
		Sample: 1, Ask: 0.5, Lookup: 2, Score: 4, Remote: 8 + 16, Copy: 32, Train: 64 + 128 + 256,
		Sync: 512, Shuffle: 0.25,
	}
	if got := TermsOf(phases, 4); got != want {
		t.Errorf("terms %+v, want %+v", got, want)
	}
}
