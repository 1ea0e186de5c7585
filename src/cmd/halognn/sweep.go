package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"halognn/src/base/flock"
	"halognn/src/data/dataset"
	"halognn/src/data/rundir"
	"halognn/src/data/shard"
	"halognn/src/runs/config"
	"halognn/src/runs/report"
)

// sweepFlags has the flags of the command sweep.
type sweepFlags struct {
	config, out, launcher string
	splits                string // "all", or values of data.split
	grid, sets            []string
	seeds, inProcess      int
	// number of the only run to train, from 1, for an element of a job array; 0 to train all runs,
	// one after the other
	task int
	list bool
}

func sweepCommand(p *process) *cobra.Command {
	var o sweepFlags
	c := &cobra.Command{
		Use:   "sweep --config FILE.yaml --out DIR [--grid key=a,b ...] [--seeds N]",
		Short: "Train every combination of settings, and compare them by validation",
		Long: "Train every combination of settings with every seed, one run after the other, " +
			"into OUT/SETTINGS. Repeat the command to go on with a sweep: runs that have " +
			"finished stay. A run that fails does not end the others. The table chooses by " +
			"validation, shows the test metric beside it, and gives mean and standard deviation " +
			"over seeds and splits; OUT/report has the page.",
		Example: "  halognn sweep --config inputs/demo.yaml --grid train.lr=0.01,0.003 " +
			"--grid model.hidden=64,256 --seeds 5 --out runs/sweep\n" +
			"  halognn sweep --config c.yaml --grid 'sample.fanouts=[10,5],[15,10]' --launcher " +
			"'mpirun -np 4' --out runs/fanouts",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			need := []string{"config", "out"}
			if o.list {
				need = need[:1]
			}
			if err := required(c, need...); err != nil {
				return err
			}
			o.inProcess = p.goroutines
			runs, err := o.runs()
			if err != nil {
				return usageError(err)
			}
			if o.list {
				for _, r := range runs {
					out(c, "%s\n", r.name)
				}
				return nil
			}
			if o.task > len(runs) || o.task < 0 {
				return usageError(fmt.Errorf("--task is %d; it must be 1 to %d, the number of a "+
					"run of this sweep",
					o.task, len(runs)))
			}
			chosen := runs
			if o.task > 0 {
				chosen = runs[o.task-1 : o.task]
			}
			if err := o.place(runs); err != nil {
				return dataError(fmt.Errorf("--out: %w", err))
			}
			if err := o.check(chosen); err != nil {
				return err
			}
			return errors.Join(o.trainRuns(chosen, len(runs)), o.report(c, runs))
		},
	}
	f := c.Flags()
	f.StringVar(&o.config, "config", "", "YAML file of the runs")
	f.StringVar(&o.out, "out", "", "the directory of the runs and their report")
	f.StringArrayVar(&o.grid, "grid", nil, "a key and its values, as train.lr=0.01,0.003 (a "+
		"list in brackets is one value); repeat it for more keys, and every combination is "+
		"trained; without --grid, --seeds and --split-index there is one run")
	f.StringArrayVar(&o.sets, "set", nil, "override a key of all runs; repeatable")
	f.IntVar(&o.seeds, "seeds", 1, "train each combination with train.seed from 1 to this number")
	f.StringVar(&o.splits, "split-index", "", "the splits to train each combination on "+
		"(data.split): all that the parts hold, by the word all, or some, as 0,1,2")
	f.StringVar(&o.launcher, "launcher", "", "what starts the ranks of a run, as 'mpirun -np 4'")
	f.IntVar(&o.task, "task", 0, "train only the run with this number, from 1, and report all "+
		"runs that have begun: for job arrays (jobs/sweep.sbatch)")
	f.BoolVar(&o.list, "list", false, "print the settings of each run, a line a run, and "+
		"train nothing")
	p.flag(c)
	return c
}

// sweepRun is one of the sweep's runs.
type sweepRun struct {
	number    int      // number of the run in the sweep, from 1
	name, dir string   // name of the run in messages, and path of its directory
	sets      []string // the settings in which it differs from other runs of the sweep
	config    *config.Config
	done      bool // the run has trained all its epochs
}

// plain turns a setting into part of a file name, such as sample.fanouts=[10,5] into
// sample.fanouts=10-5.
var plain = strings.NewReplacer("/", "_", " ", "", "[", "", "]", "", ",", "-")

// axis is a key of the config with the values to try.
type axis struct {
	key    string
	values []string
}

// check returns an error for a value that the key cannot have, or that is given twice.
func (a axis) check() error {
	seen := map[string]string{}
	for _, text := range a.values {
		value, err := config.Value(a.key, text)
		if err != nil {
			return err
		}
		if first, twice := seen[value]; twice {
			return fmt.Errorf("%s and %s are equal values; leave out one", first, text)
		}
		seen[value] = text
	}
	return nil
}

// axes returns the keys that vary: those of --grid, data.split for --split-index, and train.seed
// for --seeds. Only one of these flags, --set and --out may give a key its values.
func (o *sweepFlags) axes() (all []axis, err error) {
	if o.seeds < 1 {
		return nil, fmt.Errorf("--seeds is %d; it must be at least 1", o.seeds)
	}
	by := map[string]string{"run.dir": "--out"}
	take := func(key, flag string) error {
		if first := by[key]; first != "" {
			return fmt.Errorf("%s is given by %s and by %s; leave out one", key, first, flag)
		}
		by[key] = flag
		return nil
	}
	for _, set := range o.sets {
		key, _, _ := strings.Cut(set, "=")
		if key = strings.TrimSpace(key); by[key] == "--set" {
			continue // the last --set of a key counts, as in train
		}
		if err := take(key, "--set"); err != nil {
			return nil, err
		}
	}
	for _, grid := range o.grid {
		key, values, found := strings.Cut(grid, "=")
		key = strings.TrimSpace(key)
		if !found || values == "" {
			return nil, fmt.Errorf("--grid %s: want a key and its values, as train.lr=0.01,0.003",
				grid)
		}
		a := axis{key, valuesOf(values)}
		if err := errors.Join(take(key, "--grid"), a.check()); err != nil {
			return nil, fmt.Errorf("--grid %s: %w", grid, err)
		}
		all = append(all, a)
	}
	if o.splits != "" {
		splits := axis{"data.split", valuesOf(o.splits)}
		if err := take(splits.key, "--split-index"); err != nil {
			return nil, err
		}
		if o.splits == "all" {
			if by["data.parts"] == "--grid" {
				return nil, errors.New("--split-index all needs the same parts in all runs, but " +
					"--grid varies data.parts; name the splits instead, such as 0,1,2")
			}
			if splits.values, err = o.allSplits(); err != nil {
				return nil, err
			}
		} else if err := splits.check(); err != nil {
			return nil, fmt.Errorf("--split-index %s: %w", o.splits, err)
		}
		all = append(all, splits)
	}
	if o.seeds > 1 {
		seeds := axis{key: "train.seed"}
		for i := range o.seeds {
			seeds.values = append(seeds.values, strconv.Itoa(i+1))
		}
		all = append(all, seeds)
		err = take(seeds.key, "--seeds")
	}
	return all, err
}

// allSplits returns the splits that the parts have.
func (o *sweepFlags) allSplits() (values []string, err error) {
	c, err := config.Load(o.config, append(slices.Clone(o.sets), "run.dir="+o.out))
	if err != nil {
		return nil, err
	}
	m, err := shard.ReadMeta(c.Data.Parts)
	if err != nil {
		return nil, err
	}
	for k := range 1 + len(m.MoreSplits) {
		values = append(values, strconv.Itoa(k))
	}
	if len(values) == 1 {
		return nil, fmt.Errorf("--split-index all: %w", shard.UseSplit(m, 1))
	}
	return values, nil
}

// runs returns the runs of the sweep, one for every combination of values; from one run to the
// next, the seed changes fastest, then the last key. It checks all configs. If several configs have
// the same error, runs reports it once.
func (o *sweepFlags) runs() (runs []sweepRun, err error) {
	axes, err := o.axes()
	if err != nil {
		return nil, err
	}
	all := [][]string{nil}
	for _, a := range axes {
		var longer [][]string
		for _, sets := range all {
			for _, v := range a.values {
				longer = append(longer, append(sets[:len(sets):len(sets)], a.key+"="+v))
			}
		}
		all = longer
	}
	var faults []error
	dirs, said := map[string]bool{}, map[string]bool{}
	for _, sets := range all {
		r := sweepRun{number: len(runs) + 1, name: "run", dir: "run", sets: sets}
		if len(sets) > 0 {
			r.name, r.dir = strings.Join(sets, " "), ""
			for i, s := range sets {
				r.dir += strings.Repeat(",", min(i, 1)) + plain.Replace(s)
			}
		}
		if dirs[r.dir] {
			return nil, fmt.Errorf("two runs would have the same directory %s; leave out equal "+
				"values", r.dir)
		}
		dirs[r.dir] = true
		r.dir = filepath.Join(o.out, r.dir)
		r.config, err = config.Load(o.config, append(slices.Concat(o.sets, sets), "run.dir="+r.dir))
		if err != nil && !said[err.Error()] {
			said[err.Error()] = true
			faults = append(faults, fmt.Errorf("%s: %w", r.name, err))
		}
		runs = append(runs, r)
	}
	if len(faults) > 3 {
		faults = append(faults[:3], fmt.Errorf("%d more faults of that kind", len(faults)-3))
	}
	return runs, errors.Join(faults...)
}

// valuesOf splits the text at the commas that are outside brackets.
func valuesOf(text string) (values []string) {
	depth, begin := 0, 0
	for i, c := range text {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && depth == 0:
			values, begin = append(values, text[begin:i]), i+1
		}
	}
	return append(values, text[begin:])
}

// check finds out which runs are done. It also refuses, before any run begins, settings with which
// all runs would fail.
func (o *sweepFlags) check(runs []sweepRun) error {
	for i := range runs {
		r := &runs[i]
		if err := r.look(); err != nil {
			return err
		}
		if r.done {
			continue
		}
		m, err := shard.ReadMeta(r.config.Data.Parts)
		if err == nil {
			err = shard.UseSplit(m, r.config.Data.Split)
		}
		if err != nil {
			return dataError(err)
		}
	}
	return nil
}

// place returns an error if --out cannot hold the sweep, because it is itself a run or a file,
// holds runs of another sweep, which the report would leave out, or holds other files. If --out
// holds a run of this sweep, other files, such as logs, are allowed too.
func (o *sweepFlags) place(runs []sweepRun) error {
	if _, err := os.Stat(filepath.Join(o.out, rundir.ConfigFile)); err == nil {
		return fmt.Errorf("%s holds a run; give another directory", o.out)
	}
	// dataset.Vacant, called below, reports what ReadDir could not read
	entries, _ := os.ReadDir(o.out)
	ours := false
	for _, e := range entries {
		at := filepath.Join(o.out, e.Name())
		own := slices.ContainsFunc(runs, func(r sweepRun) bool { return r.dir == at })
		if !own && rundir.Begun(at) {
			return usageError(fmt.Errorf("%s is a run of another sweep, or of values that this "+
				"command leaves out; give all values with which that sweep was begun, or another "+
				"directory", at))
		}
		ours = ours || own
	}
	if ours {
		return nil
	}
	return dataset.Vacant(o.out)
}

// look finds out whether the run has done all its epochs. It returns an error if the directory
// holds a run whose settings lead to other results, or that was begun with more epochs.
func (r *sweepRun) look() error {
	began := filepath.Join(r.dir, rundir.ConfigFile)
	if _, err := os.Stat(began); err != nil {
		return nil
	}
	was, err := config.Load(began, nil)
	if err != nil {
		return dataError(err)
	}
	if err := r.config.Changes(was.Flat()); err != nil {
		return usageError(fmt.Errorf("%s holds a run of another sweep: %w; give another --out",
			r.dir, err))
	}
	now, then := r.config.Job.Epochs, was.Job.Epochs
	if now < then {
		return usageError(fmt.Errorf("train.epochs is %d, but %s was begun with %d; give at "+
			"least as "+
			"many, or another --out", now, r.dir, then))
	}
	r.done = now == then && r.ended()
	return nil
}

// ended reports whether the run has finished: it has a summary.
func (r *sweepRun) ended() bool {
	_, err := os.Stat(filepath.Join(r.dir, rundir.SummaryFile))
	return err == nil
}

// trainRuns trains the runs that are not done. The argument `total` is the number of all runs of
// the sweep.
func (o *sweepFlags) trainRuns(runs []sweepRun, total int) error {
	stopOnSignals() // from now on a signal ends this process in order, even between two runs
	var failed []string
	var last error
	tried, left := 0, 0 // left counts the runs that a request to stop left unfinished
	for i := range runs {
		r := &runs[i]
		if r.done {
			slog.Info(fmt.Sprintf("%d of %d, %s: has finished before", r.number, total, r.name))
			continue
		}
		if left > 0 || isStopping() {
			left++
			continue
		}
		tried++
		begun := time.Now()
		slog.Info(fmt.Sprintf("%d of %d, %s", r.number, total, r.name))
		err := o.trainOne(r)
		var exit *exec.ExitError
		switch {
		case err != nil && !errors.As(err, &exit):
			return usageError(fmt.Errorf("--launcher: %w", err))
		// not all launchers pass on the exit code of a stopped run: docs/exit-codes.md
		case exit != nil && exit.ExitCode() == exitRequeue, isStopping() && !r.ended():
			left++
		case exit != nil:
			failed = append(failed, fmt.Sprintf("%s (%v)", r.name, exit.ProcessState))
			// after death by a signal the exit code is -1
			last = withCode(max(exitFailed, exit.ExitCode()), fmt.Errorf("%s failed: %v", r.name,
				exit.ProcessState))
		default:
			slog.Info(fmt.Sprintf("%s in %.1f s", scored(r.dir), time.Since(begun).Seconds()))
		}
	}
	if len(failed) > 1 {
		last = fmt.Errorf("%d runs of %d failed: %s", len(failed), tried, strings.Join(failed,
			"; "))
	}
	if left > 0 { // a job script must learn of this, whatever else has happened
		text := fmt.Sprintf("stopped by a signal with %d of %d runs to go; repeat the same "+
			"command to go on",
			left, len(runs))
		if last != nil {
			text += ". " + last.Error()
		}
		return withCode(exitRequeue, errors.New(text))
	}
	return last
}

// trainOne trains or continues one run in a process of its own.
func (o *sweepFlags) trainOne(r *sweepRun) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	words := append(strings.Fields(o.launcher), self, "train", "--quiet", "--config", o.config,
		"--resume", r.dir)
	for _, s := range slices.Concat(o.sets, r.sets) {
		words = append(words, "--set", s)
	}
	if o.inProcess > 0 {
		words = append(words, "--ranks-in-process", strconv.Itoa(o.inProcess))
	}
	c := exec.Command(words[0], words[1:]...)
	c.Stderr = os.Stderr
	// The child has a process group of its own. So the terminal's Ctrl-C reaches only this process,
	// which passes it on once, and ends itself at a second one. Pdeathsig ends the child when the
	// thread that started it ends, so that thread must live on.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := c.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-stopOnSignals():
			// an error means that the child has ended meanwhile
			_ = c.Process.Signal(syscall.SIGTERM)
		case <-done:
		}
	}()
	return c.Wait()
}

func isStopping() bool {
	select {
	case <-stopOnSignals():
		return true
	default:
		return false
	}
}

// scored returns the scores of a finished run.
func scored(dir string) string {
	runs, err := report.Load([]string{dir})
	if err != nil {
		return err.Error()
	}
	return runs[0].Scores()
}

// report writes the report of the runs that have begun, and prints its table. The elements of a job
// array take turns, so the report of the last one covers all runs.
func (o *sweepFlags) report(c *cobra.Command, runs []sweepRun) error {
	var begun []string
	for _, r := range runs {
		if _, err := os.Stat(filepath.Join(r.dir, rundir.ConfigFile)); err == nil {
			begun = append(begun, r.dir)
		}
	}
	if len(begun) == 0 {
		return nil
	}
	done, err := takeTurn(filepath.Join(o.out, "lock"))
	if err != nil {
		return dataError(err)
	}
	defer done()
	loaded, err := report.Load(begun)
	if err != nil {
		return dataError(err)
	}
	page := filepath.Join(o.out, "report")
	if err := report.Write(loaded, page); err != nil {
		return dataError(err)
	}
	if err := report.PrintSweep(c.OutOrStdout(), loaded); err != nil {
		return err
	}
	out(c, "\n%d of %d runs; written to %s\n", len(begun), len(runs),
		filepath.Join(page, report.PageFile))
	return nil
}

// takeTurn waits for the lock of the file at path. The function endTurn removes the file and
// releases the lock.
func takeTurn(path string) (endTurn func(), err error) {
	unlock, err := flock.Lock(path, 0o666)
	if err != nil {
		return nil, err
	}
	return func() {
		_ = os.Remove(path) // if this fails, the next process takes the file over
		unlock()
	}, nil
}
