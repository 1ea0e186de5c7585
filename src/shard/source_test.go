package shard

import (
	"errors"
	"slices"
	"testing"
)

// A vertex has one id: other spellings of the number name none, so that no row of the output stays
// empty because its vertex was given twice.
func TestIDsAreSpelledOneWay(t *testing.T) {
	ids := &SourceIDs{vertices: 40}
	if found, err := ids.Find([]string{"7", "0", "39"}); err != nil ||
		!slices.Equal(found, []int32{7, 0, 39}) {
		t.Errorf("found %d, %v", found, err)
	}
	for _, other := range []string{"007", "+7", "-0", "40", "x", ""} {
		if found, err := ids.Find([]string{"7", other}); !errors.Is(err, ErrNoVertex) {
			t.Errorf("%q is found: %d, %v", other, found, err)
		}
	}
	if _, err := ids.Find([]string{"7", "7"}); err == nil {
		t.Error("a vertex is given twice")
	}
}
