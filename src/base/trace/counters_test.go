package trace

import (
	"reflect"
	"testing"
)

// Every field is added and divided: one that is forgotten would be lost from every report.
func TestCountersAddAndDivideAllFields(t *testing.T) {
	var one, three, sum Counters
	numbered(reflect.ValueOf(&one).Elem(), 1)
	numbered(reflect.ValueOf(&three).Elem(), 3)
	for range 3 {
		sum.Add(one)
	}
	if sum != three || three.Sampling.Bytes == 0 {
		t.Errorf("three times %+v is %+v", one, sum)
	}
	if got := sum.Per(3); got != one {
		t.Errorf("a third of %+v is %+v, want %+v", sum, got, one)
	}
}

// numbered sets the numbers of a struct, and of the structs in it, to 1, 2, ... times a factor.
func numbered(v reflect.Value, factor int64) {
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Struct {
			numbered(f, factor)
		} else {
			f.SetInt(factor * int64(i+1))
		}
	}
}

func TestRowsAddUp(t *testing.T) {
	c := Counters{Frontier: 12, Local: 4, Cached: 2, Peer: 1, PeerCached: 1, Remote: 6, Early: 1}
	if err := c.Check(12); err != nil {
		t.Error(err)
	}
	if r := c.Replacing(); r.Check(12) != nil || r.Replaced != 1 || r.Early != 0 ||
		r.Fetched() != c.Fetched() {
		t.Errorf("of %+v replacing makes %+v", c, r)
	}
	if c.Check(13) == nil {
		t.Error("another frontier adds up, too")
	}
	// Eight remote accesses: three found in caches, five fetched, and a row transferred besides.
	if hit, buffer := c.HitRates(); hit != 1-6./8 || buffer != 3./8 {
		t.Errorf("hit rates %g and %g", hit, buffer)
	}
	// Rows that another rank of the node has fetched are in no cache.
	c.Frontier, c.Shared = 20, 8
	if hit, buffer := c.HitRates(); c.Check(20) != nil || hit != 1-14./16 || buffer != 3./16 {
		t.Errorf("with shared rows hit rates %g and %g", hit, buffer)
	}
	if hit, buffer := (Counters{Local: 3}).HitRates(); hit != 0 || buffer != 0 {
		t.Errorf("without accesses hit rates %g and %g", hit, buffer)
	}
}

// The counters are nothing but words of 64 bits: what is done to all alike relies on it.
func TestCountersAreWords(t *testing.T) {
	words := 0
	var count func(of reflect.Type)
	count = func(of reflect.Type) {
		for i := range of.NumField() {
			switch f := of.Field(i); {
			case f.Anonymous:
				count(f.Type)
			case f.Type.Kind() != reflect.Int64 || f.Tag.Get("json") == "":
				t.Errorf("%s is a %s with the tag %q; want 64 bits and a key", f.Name, f.Type,
					f.Tag)
			default:
				words++
			}
		}
	}
	count(reflect.TypeFor[Counters]())
	if words != int(numCounters) {
		t.Errorf("%d counters, %d words", words, numCounters)
	}
	c := Counters{Local: 3, Served: 4, Scoring: 5}
	c.Shuffles.Got = 6
	if got := c.Reported(); got != (Counters{Local: 3}) {
		t.Errorf("reports have %+v", got)
	}
}
