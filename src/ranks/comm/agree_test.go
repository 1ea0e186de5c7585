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

// What ranks give, in any number and as text or JSON, comes to all in rank order; what rank 0 does
// alone, with its error, too.
func TestGatherOfSeveralKinds(t *testing.T) {
	const ranks = 3
	err := RunWorld(ranks, func(c Comm) error {
		r := c.Rank()
		numbers, err := Allgatherv(c, make([]int32, r, ranks))
		texts, err2 := AllgatherStrings(c, fmt.Sprint("rank ", r))
		values, err3 := AllgatherJSON(c, map[string]int{"rank": r})
		here, err4 := RanksHere(c, 2)
		if err := errors.Join(err, err2, err3, err4); err != nil {
			return err
		}
		for k := range ranks {
			if len(numbers[k]) != k || texts[k] != fmt.Sprint("rank ", k) ||
				values[k]["rank"] != k {
				return fmt.Errorf("%v, %v, %v", numbers, texts, values)
			}
		}
		if here[0] != r-r%2 || len(here) != min(2, ranks-here[0]) {
			return fmt.Errorf("ranks of the node of rank %d: %v", r, here)
		}
		calls, told := 0, ""
		if err := OnFirst(c, func() error {
			calls, told = calls+1, "done"
			return nil
		}); err != nil {
			return err
		}
		if told, err = Bcast(c, told); err != nil || told != "done" || calls > 0 != (r == 0) {
			return fmt.Errorf("rank 0 says %q (%v) after %d calls of rank %d", told, err, calls, r)
		}
		if err := OnFirst(c, func() error { return fs.ErrExist }); err == nil {
			return errors.New("the error of rank 0 is not known")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The code of an agreed error is that of the rank which has it as a type, wherever the others read
// its text; of one that all know, that of rank 0.
func TestAgreedCode(t *testing.T) {
	gone := fmt.Errorf("parts: %w", fs.ErrNotExist)
	codeOf := func(err error) int {
		if errors.Is(err, fs.ErrNotExist) {
			return 7
		}
		return 1
	}
	for _, c := range []struct {
		name string
		errs []error
		want int
	}{
		{"the last rank", []error{nil, nil, gone}, 7}, {"rank 0", []error{gone, nil}, 7},
		{"the first of two", []error{nil, errors.New("a"), gone}, 1},
		{"all", []error{gone, gone}, 7},
	} {
		err := RunWorld(len(c.errs), func(w Comm) error {
			agreed := Agree(w, c.errs[w.Rank()])
			code, err := AgreedCode(w, fmt.Errorf("more: %w", agreed), codeOf(agreed))
			if err == nil && code != c.want {
				err = fmt.Errorf("rank %d has code %d, want %d", w.Rank(), code, c.want)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	err := RunWorld(2, func(w Comm) error {
		code, err := AgreedCode(w, AgreedOn(w, gone), w.Rank()+3)
		if err == nil && code != 3 {
			err = fmt.Errorf("code %d", code)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
