package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func spanOf(name string, item, epoch int, ts, dur float64) span {
	s := span{Name: name, Cat: "train", Ph: "X", Ts: ts, Dur: dur, Pid: 1}
	s.Args.Item, s.Args.Epoch = item, epoch
	return s
}

func TestMeasure(t *testing.T) {
	for _, c := range []struct {
		name              string
		spans             []span
		inside, whole     float64
		overlapped, items int
	}{
		{"by turns", []span{spanOf("sample", 0, 1, 0, 10), spanOf("forward", 0, 1, 10, 10),
			spanOf("sample", 1, 1, 20, 10)}, 0, 10, 0, 1},
		{"half", []span{spanOf("forward", 0, 1, 0, 10), spanOf("backward", 0, 1, 10, 5),
			spanOf("sample", 1, 1, 5, 20)}, 10, 20, 1, 1},
		{"an item does not overlap itself",
			[]span{spanOf("forward", 1, 1, 0, 10), spanOf("sample", 1, 1, 0, 10)}, 0, 10, 0, 1},
		{"nor another epoch", []span{spanOf("forward", 0, 1, 0, 10), spanOf("sample", 1, 2, 0, 10)},
			0, 10, 0, 1},
		{"waiting is no preparation",
			[]span{spanOf("forward", 0, 1, 0, 10), spanOf("wait", 1, 1, 0, 10)}, 0, 0, 0, 0},
		{"nor is a checkpoint", []span{spanOf("forward", 0, 1, 0, 10), spanOf("save", 1, 1, 0, 10)},
			0, 0, 0, 0},
	} {
		o := measure(c.spans)
		if math.Abs(o.inside-c.inside) > 1e-9 || o.whole != c.whole ||
			o.overlapped != c.overlapped || o.items != c.items {
			t.Errorf("%s: %+v, want %+v", c.name, o, c)
		}
	}
}

// A trace that was cut off anywhere after its first span is read up to there.
func TestReadWhatAKilledRunLeaves(t *testing.T) {
	const whole = "[\n{\"name\":\"sample\",\"ph\":\"X\",\"args\":{\"item\":1}},\n" +
		"{\"name\":\"forward\",\"ph\":\"X\",\"args\":{\"item\":2}}\n]\n"
	path := filepath.Join(t.TempDir(), "rank-0000.json")
	for _, n := range []int{len(whole), len(whole) - 3, len(whole) - 9} {
		if err := os.WriteFile(path, []byte(whole[:n]), 0o666); err != nil {
			t.Fatal(err)
		}
		spans, err := read(path)
		if err != nil || len(spans) == 0 || spans[0].Name != "sample" {
			t.Errorf("%d bytes: %v, %v", n, spans, err)
		}
	}
	if err := os.WriteFile(path, []byte("nothing"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := read(path); err == nil {
		t.Error("no error for what is no trace")
	}
}
