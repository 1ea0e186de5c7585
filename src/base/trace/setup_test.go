package trace

import (
	"math"
	"testing"
	"time"
)

func TestSetUpItemsAddUp(t *testing.T) {
	const ago, nap = 70 * time.Millisecond, 20 * time.Millisecond
	s := NewSetUp(time.Now().Add(-ago)) // an item may be long under way
	s.Done(SetUpLaunch)
	time.Sleep(nap)
	s.Done(SetUpRank)
	time.Sleep(nap)
	s.Done(SetUpFill)
	time.Sleep(nap)
	s.Done(SetUpRank) // again
	s.End(SetUpRun)
	items, total := s.Seconds()
	sum := 0.0
	for _, x := range items {
		sum += x
	}
	if math.Abs(sum-total) > 1e-3 || total < (ago+3*nap).Seconds() {
		t.Errorf("items add up to %g s, the whole is %g s", sum, total)
	}
	for item, least := range map[SetUpItem]time.Duration{SetUpLaunch: ago, SetUpRank: 2 * nap,
		SetUpFill: nap} {
		if items[item] < least.Seconds() {
			t.Errorf("%s took %g s, at least %v went by", item, items[item], least)
		}
	}
	if items[SetUpOpen] != 0 {
		t.Errorf("%s took %g s, but was never done", SetUpOpen, items[SetUpOpen])
	}
	s.Done(SetUpFill)
	s.End(SetUpFill)
	if again, whole := s.Seconds(); again != items || whole != total {
		t.Error("time after the end counts")
	}
}

func TestNoSetUpMeasuresNothing(t *testing.T) {
	var s *SetUp
	s.Done(SetUpOpen)
	s.End(SetUpRun)
	if items, total := s.Seconds(); total != 0 || items != [NumSetUpItems]float64{} {
		t.Errorf("%v, %g s", items, total)
	}
}
