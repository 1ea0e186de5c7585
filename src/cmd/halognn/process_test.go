package main

import "testing"

// Of the ranks of a node that do not meet those of others, one says so: the others end after it
// has.
func TestOneRankOfANodeSpeaks(t *testing.T) {
	speaks, first := meetingOf(0)
	if !speaks || first != meetingLimit {
		t.Errorf("the first rank of a node speaks: %t, and gives up after %v, want %v", speaks,
			first, meetingLimit)
	}
	if speaks, other := meetingOf(7); speaks || other <= first {
		t.Errorf("another one speaks: %t, and gives up after %v, the first after %v", speaks, other,
			first)
	}
}
