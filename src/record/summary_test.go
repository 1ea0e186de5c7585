package record

import (
	"strings"
	"testing"
)

// The table at the end says where to read about phases, and of several ranks where the time of the
// slowest goes.
func TestTheEndNamesAPage(t *testing.T) {
	e := EfficiencyOf([]RankTime{{Elapsed: 10, Useful: 4, CPUs: 1}, {Elapsed: 10, Useful: 8, CPUs: 1}}, 1, "")
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
