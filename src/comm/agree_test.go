package comm

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"testing"
)

// Agree gives every rank the same verdict: none if no rank has a fault, else that of the first rank
// that has one, named only if the others do not share it.
func TestAgree(t *testing.T) {
	gone := fmt.Errorf("parts: %w", fs.ErrNotExist)
	for _, c := range []struct {
		name string
		errs []error // by rank
		want string
	}{
		{"no fault", []error{nil, nil, nil}, ""},
		{"one rank", []error{nil, nil, gone}, "rank 2: parts: file does not exist"},
		{"rank 0", []error{gone, nil, nil}, "rank 0: parts: file does not exist"},
		{"all alike", []error{gone, gone, gone}, "parts: file does not exist"},
		{"each its own", []error{nil, errors.New("b"), errors.New("c")}, "rank 1: b"},
		{"one alone", []error{gone}, "parts: file does not exist"},
	} {
		var mu sync.Mutex
		var verdicts []error
		err := RunWorld(len(c.errs), func(w Comm) error {
			verdict := Agree(w, c.errs[w.Rank()])
			mu.Lock()
			defer mu.Unlock()
			verdicts = append(verdicts, verdict)
			if c.errs[w.Rank()] == gone && c.name != "each its own" &&
				!errors.Is(verdict, fs.ErrNotExist) {
				return fmt.Errorf("rank %d can no longer tell its own fault", w.Rank())
			}
			if a := (*Agreed)(nil); verdict != nil && (!errors.As(verdict, &a) ||
				a.Rank != w.Rank()) {
				return fmt.Errorf("rank %d: %v is not agreed on", w.Rank(), verdict)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, v := range verdicts {
			if (v == nil) != (c.want == "") || v != nil && v.Error() != c.want {
				t.Errorf("%s: a rank says %v, want %q", c.name, v, c.want)
			}
		}
	}
}
