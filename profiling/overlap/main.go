// Command overlap reads traces of `halognn train --trace` and says how much of the preparation of
// minibatches lay inside the training of earlier ones. It fails if that is less than asked for.
//
//	go run ./profiling/overlap [-least 0.5] RUN/trace/rank-*.json
//
//	preparation of item i+1   sample plan counts ids slice rows assemble
//	                            ├──────────── inside ────────────┤  outside
//	training of items <= i    forward backward sync update forward ...
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
)

// span is a complete event of the trace.
type span struct {
	Name, Cat, Ph string
	Ts, Dur       float64 // microseconds
	Pid           int
	Args          struct{ Item, Epoch int }
}

// training are the stages that train; all others but wait and save prepare minibatches.
var training = []string{"forward", "backward", "sync", "update"}

// overlap is what one rank's trace comes to.
type overlap struct {
	rank       int
	items      int // prepared while an earlier one may have trained
	overlapped int // of them, those of which some part was
	// microseconds of preparation inside the training of earlier items; of all preparation
	inside, whole float64
}

func (o overlap) share() float64 { return o.inside / max(o.whole, 1e-9) }

// read returns the spans of a trace, which may lack its end if the run was killed.
func read(path string) ([]span, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimRight(text, "\n")
	if !bytes.HasSuffix(text, []byte("]")) {
		if i := bytes.LastIndex(text, []byte("}}")); i >= 0 {
			text = append(text[:i+2:i+2], ']')
		}
	}
	var spans []span
	if err := json.Unmarshal(text, &spans); err != nil {
		return nil, fmt.Errorf("%s: not a trace: %w", path, err)
	}
	return spans, nil
}

// interval is a stretch of time in which an item was trained.
type interval struct {
	item       int
	begin, end float64
}

// measure compares preparation with training, epoch by epoch: items are numbered anew in each.
func measure(spans []span) overlap {
	var o overlap
	byEpoch := map[int][]span{}
	for _, s := range spans {
		if s.Ph == "X" && s.Cat == "train" {
			o.rank = s.Pid
			byEpoch[s.Args.Epoch] = append(byEpoch[s.Args.Epoch], s)
		}
	}
	for _, spans := range byEpoch {
		var trained []interval
		for _, s := range spans {
			if slices.Contains(training, s.Name) {
				trained = append(trained, interval{s.Args.Item, s.Ts, s.Ts + s.Dur})
			}
		}
		seen := map[int]bool{}
		for _, s := range spans {
			// nothing trains before item 0
			if s.Name == "wait" || s.Name == "save" || slices.Contains(training, s.Name) ||
				s.Args.Item == 0 {
				continue
			}
			in := 0.0
			// intervals of one goroutine do not overlap, so their parts add up
			for _, t := range trained {
				if t.item < s.Args.Item {
					in += max(0, min(s.Ts+s.Dur, t.end)-max(s.Ts, t.begin))
				}
			}
			o.inside += in
			o.whole += s.Dur
			seen[s.Args.Item] = seen[s.Args.Item] || in > 0
		}
		o.items += len(seen)
		for _, any := range seen {
			if any {
				o.overlapped++
			}
		}
	}
	return o
}

func main() {
	least := flag.Float64("least", 0, "fail if less than this share of the preparation lies "+
		"inside the training of earlier minibatches")
	flag.Parse()
	if err := run(flag.Args(), *least); err != nil {
		fmt.Fprintln(os.Stderr, "overlap:", err)
		os.Exit(1)
	}
}

func run(paths []string, least float64) error {
	if len(paths) == 0 {
		return errors.New("no traces; give the files that `halognn train --trace` wrote: " +
			"RUN/trace/rank-*.json")
	}
	var faults []error
	for _, path := range paths {
		spans, err := read(path)
		if err != nil {
			return err
		}
		o := measure(spans)
		fmt.Printf("rank %d: %.1f %% of %.3f s of preparation inside the training of earlier "+
			"minibatches; %d of %d minibatches overlapped\n",
			o.rank, 100*o.share(), o.whole/1e6, o.overlapped, o.items)
		if o.items == 0 || o.share() < least {
			faults = append(faults,
				fmt.Errorf("%s: a share of %.3f, less than %g: preparation did not overlap "+
					"training", path, o.share(), least))
		}
	}
	return errors.Join(faults...)
}
