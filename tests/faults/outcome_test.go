//go:build faults

package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"halognn/src/base/fault"
)

// outcome is how a job took a fault.
type outcome struct {
	job
	took   time.Duration // from the fault to the end
	lost   int           // steps to train again
	faults []string      // what is not as it has to be
}

func (o *outcome) bad(format string, args ...any) {
	o.faults = append(o.faults, fmt.Sprintf(format, args...))
}

// outside are the faults that are made from outside: what is done before the job to its copy of the
// parts or, while it runs slowly and has a checkpoint, to them or to the run.
var outside = map[string]struct {
	before func(l *lab, parts string)
	during func(l *lab, parts, run string)
}{
	"truncate": {before: func(l *lab, parts string) { l.truncate(l.featuresOf(parts), 2) }},
	"alter":    {before: func(l *lab, parts string) { l.alter(l.featuresOf(parts)) }},
	"shrink":   {during: func(l *lab, parts, _ string) { l.truncate(l.featuresOf(parts), 3) }},
	"overwrite": {during: func(l *lab, parts, _ string) {
		l.overwrite(filepath.Join(parts, "indices.npy"))
	}},
	"fill": {during: func(l *lab, _, run string) { l.fill(filler(run)) }},
}

// inject makes one fault happen.
func (l *lab) inject(i injection, run string) (o outcome) {
	l.spared(i.setting())
	parts, spec := l.parts(), i.spec()
	var during func()
	if i.point == "" {
		parts = filepath.Join(l.dir, filepath.Base(run)+"-parts")
		if err := os.CopyFS(parts, os.DirFS(l.parts())); err != nil {
			l.Fatal(err)
		}
		what := outside[i.action]
		if what.before != nil {
			what.before(l, parts)
		}
		if what.during != nil {
			spec = "forward=slow:150@-1:-1:-1" // so that there is time to
			during = func() {
				l.waitFor(filepath.Join(run, "checkpoints", "step-*"))
				l.must("touch", l.mark)
				what.during(l, parts, run)
			}
		}
	}
	o.job = l.start(i.ranks, spec, during, i.args(l, parts, run)...)
	o.judge(l, i)
	if left := l.processes(run); len(left) > 0 {
		o.bad("processes %v are left", left)
	}
	if err := os.Remove(filler(run)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.Fatal(err)
	}
	switch {
	case !i.starts:
		l.again(&o, i, run, "")
	case o.code != 0:
		intervals := 2 // one checkpoint may have been under way
		if strings.Contains(o.text, "a checkpoint was due while the previous one") {
			intervals++ // the disk is slow, says the job, and this one was put off
		}
		if o.lost = l.lost(i, run); o.lost > intervals*everySteps {
			o.bad("%d steps are lost", o.lost)
		}
		l.again(&o, i, run, run)
	default:
		o.compare(l, i, run, "")
	}
	return o
}

// judge compares how the job ended with what the kind of fault asks for.
func (o *outcome) judge(l *lab, i injection) {
	if !slices.Contains(i.codes, o.code) {
		o.bad("exit code %d, want one of %v", o.code, i.codes)
	}
	happened := o.begun
	if info, err := os.Stat(l.mark); err == nil {
		happened = info.ModTime()
	} else if i.point != "" && !strings.HasPrefix(i.action, "slow") {
		o.bad("the fault did not happen")
	}
	if o.took = o.ended.Sub(happened); o.took > i.within {
		o.bad("it took %.1f s, more than %.0f", o.took.Seconds(), i.within.Seconds())
	}
	said := messages(o.text)
	if i.says == "" && len(said) > 0 {
		o.bad("it says %q, and there is nothing to say", said)
	}
	if i.says != "" && (len(said) == 0 || len(said) > 1 && !i.each) {
		o.bad("%d messages instead of one: %q", len(said), said)
	}
	want := strings.ReplaceAll(i.says, "rank R", fmt.Sprint("rank ", i.rank))
	for _, text := range said {
		if !regexp.MustCompile(want).MatchString(text) {
			o.bad("the message does not say %q: %s", want, text)
		}
	}
}

// compare holds a run that has come to its end to one without faults.
func (o *outcome) compare(l *lab, i injection, run, when string) {
	if digest, _ := l.summary(run); digest != l.spared(i.setting()).digest {
		o.bad("%sthe loss digest is %s, want %s", when, digest, l.spared(i.setting()).digest)
	}
	for _, name := range l.halfFiles(run) {
		o.bad("%s%s is left", when, name)
	}
}

// again starts once more, with what was broken mended: it resumes the run if there is one.
func (l *lab) again(o *outcome, i injection, run, resume string) {
	args := i.args(l, l.parts(), run)
	if resume != "" && len(l.checkpoints(run)) > 0 {
		if out, _ := exec.Command(l.program, "check", run).CombinedOutput(); bytes.Count(out,
			[]byte("\n")) != 1 || !bytes.Contains(out, []byte("the run has not finished")) {
			o.bad("halognn check finds more than that the run has not finished: %s", out)
		}
		args = []string{"--resume", run, "--set", "data.parts=" + l.parts()}
	} else if resume != "" { // it went wrong before the first checkpoint
		if err := os.RemoveAll(run); err != nil {
			l.Fatal(err)
		}
	} else if _, err := os.Stat(run); err == nil {
		o.bad("a run that did not begin left %s behind", run)
	}
	j := l.start(i.ranks, "", nil, args...)
	if j.code != 0 {
		o.bad("the next start: exit code %d\n%s", j.code, j.text)
		return
	}
	o.compare(l, i, run, "after the next start ")
}

// lost returns the steps that were trained and have to be trained again.
func (l *lab) lost(i injection, run string) int {
	newest := 0
	for _, name := range l.checkpoints(run) {
		var n int
		if _, err := fmt.Sscanf(name, "step-%d", &n); err == nil {
			newest = max(newest, n)
		}
	}
	done := l.trained(run, l.spared(i.setting()).steps)
	// the end of the log may not have been written
	if slices.Contains(training, i.point) || i.point == fault.Loss {
		done = max(done, (i.epoch-1)*l.spared(i.setting()).steps+i.step)
	}
	return max(0, done-newest)
}

// trained returns how many steps the log of a run says were trained, of which an epoch has
// perEpoch.
func (l *lab) trained(run string, perEpoch int) (steps int) {
	text, err := os.ReadFile(filepath.Join(run, "metrics.jsonl"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var rec struct {
			Kind        string
			Epoch, Step int
		}
		// the last line may be cut short
		if json.Unmarshal(line, &rec) == nil && rec.Kind == "step" {
			steps = max(steps, (rec.Epoch-1)*perEpoch+rec.Step+1)
		}
	}
	return steps
}

// halfFiles lists what should have been renamed or removed.
func (l *lab) halfFiles(run string) (names []string) {
	_ = filepath.WalkDir(run, func(path string, d fs.DirEntry, err error) error {
		if base := filepath.Base(path); err == nil && path != run &&
			(strings.HasPrefix(base, ".") || strings.Contains(base, "tmp") ||
				strings.HasPrefix(base, "heartbeat") || base == "lock") {
			names = append(names, path)
		}
		return nil
	})
	return names
}

// messages returns the program's own error lines; the launcher has others.
func messages(text string) (said []string) {
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "halognn: ") {
			said = append(said, line)
		}
	}
	return said
}
