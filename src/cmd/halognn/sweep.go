package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"halognn/src/config"
	"halognn/src/report"
	"halognn/src/rundir"
)

// sweepFlags are the flags of sweep.
type sweepFlags struct {
	config, out, launcher string
	grid, sets            []string
	seeds, inProcess      int
	task                  int // the run of a job array, from 1; 0: all, one after the other
	list                  bool
}

func sweepCommand(p *process) *cobra.Command {
	var o sweepFlags
	c := &cobra.Command{
		Use:   "sweep --config FILE.yaml --grid key=a,b [--grid ...] [--seeds N] --out DIR",
		Short: "Train every combination of settings, and compare them by validation",
		Long: "Train every combination of settings with every seed, one run after the other, into " +
			"OUT/SETTINGS. Begun again, it goes on: what has finished stays. A run that fails does not " +
			"end the others. The table chooses by validation, shows the test metric beside it, and " +
			"gives mean and standard deviation over seeds; OUT/report has the page.",
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
					out(c, "%s\n", strings.Join(r.sets, " "))
				}
				return nil
			}
			if o.task > len(runs) || o.task < 0 {
				return usageError(fmt.Errorf("--task %d: the sweep has %d runs, which count from 1", o.task,
					len(runs)))
			}
			return o.train(runs)
		},
	}
	f := c.Flags()
	f.StringVar(&o.config, "config", "", "YAML file of the runs")
	f.StringVar(&o.out, "out", "", "the directory of the runs and their report")
	f.StringArrayVar(&o.grid, "grid", nil, "a key and its values, as train.lr=0.01,0.003; a list in "+
		"brackets is one value; repeatable: every combination is trained")
	f.StringArrayVar(&o.sets, "set", nil, "override a key of all runs; repeatable")
	f.IntVar(&o.seeds, "seeds", 1, "train each combination with train.seed from 1 to this number")
	f.StringVar(&o.launcher, "launcher", "", "what starts the ranks of a run, as 'mpirun -np 4'")
	f.IntVar(&o.task, "task", 0, "train this run alone, from 1, and report those that have begun: an "+
		"element of a job array (jobs/sweep.sbatch)")
	f.BoolVar(&o.list, "list", false, "print the settings of each run, a line a run, and train nothing")
	p.flag(c)
	return c
}

// sweepRun is one run of a sweep.
type sweepRun struct {
	dir  string
	sets []string // that tell it from the others
}

// plain makes a setting part of a file's name: sample.fanouts=[10,5] is sample.fanouts=10-5.
var plain = strings.NewReplacer("/", "_", " ", "", "[", "", "]", "", ",", "-")

// runs returns the runs of the sweep: every combination, the last key and the seed changing first.
// The configs of all are checked.
func (o *sweepFlags) runs() ([]sweepRun, error) {
	if o.seeds < 1 {
		return nil, fmt.Errorf("--seeds is %d; it must be at least 1", o.seeds)
	}
	all := [][]string{nil}
	grid := o.grid
	if o.seeds > 1 {
		seeds := "train.seed="
		for i := range o.seeds {
			seeds += strconv.Itoa(i+1) + ","
		}
		grid = append(grid[:len(grid):len(grid)], strings.TrimSuffix(seeds, ","))
	}
	seen := map[string]bool{}
	for _, axis := range grid {
		key, values, found := strings.Cut(axis, "=")
		if !found || values == "" {
			return nil, fmt.Errorf("--grid %s: want a key and its values, as train.lr=0.01,0.003", axis)
		}
		if seen[key] {
			return nil, fmt.Errorf("%s has two lists of values; give one", key)
		}
		seen[key] = true
		var longer [][]string
		for _, sets := range all {
			for _, v := range valuesOf(values) {
				longer = append(longer, append(sets[:len(sets):len(sets)], key+"="+v))
			}
		}
		all = longer
	}
	var runs []sweepRun
	var faults []error
	dirs := map[string]bool{}
	for _, sets := range all {
		name := "run"
		if len(sets) > 0 {
			var words []string
			for _, s := range sets {
				words = append(words, plain.Replace(s))
			}
			name = strings.Join(words, ",")
		}
		if dirs[name] {
			return nil, fmt.Errorf("two runs would have the name %s; leave out equal values", name)
		}
		dirs[name] = true
		r := sweepRun{filepath.Join(o.out, name), sets}
		if _, err := config.Load(o.config, o.settings(r)); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", strings.Join(sets, " "), err))
		}
		runs = append(runs, r)
	}
	if len(faults) > 3 {
		faults = append(faults[:3], fmt.Errorf("%d more of %d runs have faults", len(faults)-3, len(runs)))
	}
	return runs, errors.Join(faults...)
}

func (o *sweepFlags) settings(r sweepRun) []string {
	return append(append(o.sets[:len(o.sets):len(o.sets)], r.sets...), "run.dir="+r.dir)
}

// valuesOf splits at commas outside brackets.
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

// train trains the runs that have not finished, and reports all that have begun.
func (o *sweepFlags) train(runs []sweepRun) error {
	failed, stopped, tried := []string{}, false, 0
	var last error
	for i, r := range runs {
		if o.task > 0 && o.task != i+1 {
			continue
		}
		name := strings.Join(r.sets, " ")
		if done, err := o.finished(r); err != nil {
			return usageError(err)
		} else if done {
			slog.Info(fmt.Sprintf("%d of %d, %s: has finished before", i+1, len(runs), name))
			continue
		}
		tried++
		begun := time.Now()
		slog.Info(fmt.Sprintf("%d of %d, %s", i+1, len(runs), name))
		err := o.trainOne(r)
		var exit *exec.ExitError
		switch {
		case err == nil:
			slog.Info(fmt.Sprintf("%s in %.1f s", scored(r.dir), time.Since(begun).Seconds()))
		case errors.As(err, &exit) && exit.ExitCode() == exitRequeue:
			stopped, last = true, withCode(exitRequeue, fmt.Errorf("%s was stopped and has saved its "+
				"state; the same command goes on", name))
		case errors.As(err, &exit):
			failed = append(failed, name)
			last = withCode(exit.ExitCode(), fmt.Errorf("%s failed, with exit code %d", name,
				exit.ExitCode()))
		default:
			return usageError(fmt.Errorf("--launcher: %w", err))
		}
		if stopped || isStopping() {
			break
		}
	}
	if len(failed) > 1 {
		last = fmt.Errorf("%d runs of %d failed: %s", len(failed), tried, strings.Join(failed, "; "))
	}
	return errors.Join(last, o.report(runs))
}

// finished reports whether a run has all its epochs. A run of other numbers in its place is an
// error.
func (o *sweepFlags) finished(r sweepRun) (bool, error) {
	began := filepath.Join(r.dir, rundir.ConfigFile)
	if _, err := os.Stat(filepath.Join(r.dir, rundir.SummaryFile)); err != nil {
		return false, nil
	}
	if err := config.Keeps(began, o.config, o.settings(r)); err != nil {
		return false, fmt.Errorf("%s holds a run of another sweep: %w; give another --out", r.dir, err)
	}
	was, err := config.Load(began, nil)
	if err != nil {
		return false, err
	}
	now, err := config.Load(o.config, o.settings(r))
	return err == nil && was.Job.Epochs == now.Job.Epochs, err
}

// trainOne trains or continues one run, in processes of its own.
func (o *sweepFlags) trainOne(r sweepRun) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	words := append(strings.Fields(o.launcher), self, "train", "--quiet", "--config", o.config,
		"--resume", r.dir)
	for _, s := range append(o.sets[:len(o.sets):len(o.sets)], r.sets...) {
		words = append(words, "--set", s)
	}
	if o.inProcess > 0 {
		words = append(words, "--ranks-in-process", strconv.Itoa(o.inProcess))
	}
	c := exec.Command(words[0], words[1:]...)
	c.Stderr = os.Stderr
	// A group of its own: the terminal's Ctrl-C reaches this process, which passes it on once.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-stopOnSignals():
			_ = c.Process.Signal(syscall.SIGTERM) // it may have ended meanwhile
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

// scored says what a finished run came to.
func scored(dir string) string {
	runs, err := report.Load([]string{dir})
	if err != nil {
		return err.Error()
	}
	return runs[0].Scores()
}

// report writes the report of the runs that have begun. Elements of a job array take turns, so the
// last one's is over all runs.
func (o *sweepFlags) report(runs []sweepRun) error {
	var begun []string
	for _, r := range runs {
		if _, err := os.Stat(filepath.Join(r.dir, rundir.ConfigFile)); err == nil {
			begun = append(begun, r.dir)
		}
	}
	if len(begun) == 0 {
		return nil
	}
	lock, err := os.OpenFile(filepath.Join(o.out, "lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return dataError(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return dataError(err)
	}
	loaded, err := report.Load(begun)
	if err != nil {
		return dataError(err)
	}
	page := filepath.Join(o.out, "report")
	if err := report.Write(loaded, page); err != nil {
		return dataError(err)
	}
	if err := report.PrintSweep(os.Stdout, loaded); err != nil {
		return err
	}
	fmt.Printf("\n%d of %d runs; written to %s\n", len(begun), len(runs),
		filepath.Join(page, report.PageFile))
	return nil
}
