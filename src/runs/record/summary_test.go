package record

import (
	"strings"
	"testing"
)

// The table at the end says where to read about phases, and of several ranks where the time of the
// slowest goes.
func TestTheEndNamesAPage(t *testing.T) {
	e := EfficiencyOf(
		[]RankTime{{Elapsed: 10, Useful: 4, CPUs: 1}, {Elapsed: 10, Useful: 8, CPUs: 1}}, 1, "")
	for ranks, sentence := range map[int]bool{1: false, 2: true} {
		s := Summary{Times: Times{Efficiency: e}, Machine: Machine{Ranks: ranks}}
		var b strings.Builder
		if err := s.Print(&b); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if strings.Contains(text, "Rank 1 works longest") != sentence ||
			!strings.Contains(text, "docs/guide/reading-a-report.md") {
			t.Errorf("%d ranks:\n%s", ranks, text)
		}
	}
}

// Rows that another rank of the node fetched are in the table where there are some.
func TestSharedRowsAreShown(t *testing.T) {
	for _, shared := range []int64{0, 1234567} {
		var s Summary
		s.Shared = shared
		var b strings.Builder
		if err := s.Print(&b); err != nil {
			t.Fatal(err)
		}
		if text := b.String(); strings.Contains(text, "1234567") != (shared > 0) ||
			strings.Contains(text, "another rank of the node") != (shared > 0) {
			t.Errorf("%d rows:\n%s", shared, text)
		}
	}
}
